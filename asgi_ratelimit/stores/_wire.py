"""What travels between ``RedisStore`` and ``rate_limit.lua``: packed takes there, values of keys back.

The script answers with the state that each charge found, and the decision is worked out here from that, by the same
``decide`` that a memory store calls. So a reply is short, and both stores give equal decisions by construction.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TypeAlias

from ..algorithms import State, decide
from ..decision import Charge, Decision, Take
from ..errors import StoreError
from ..quotas import Quota

FORMAT = 1
"""The first byte of a stored value: how the rest is packed."""

Reply: TypeAlias = Sequence[bytes | None]

_QUOTA = struct.Struct("<Bdddddd")
_TAKE = struct.Struct("<dB")
_CHARGE = struct.Struct("<Bd")
_STAMP = struct.Struct("<Bf")
_STATE = struct.Struct("<dd")
_LOOK_ONLY = -1.0


def encode(takes: Sequence[Take], *, look_only: bool = False) -> tuple[bytes, bytes]:
    """The distinct quotas, each once, and the takes, as the script's first two arguments."""
    quotas: dict[Quota, int] = {}
    packed = []
    for take in takes:
        packed.append(_TAKE.pack(_LOOK_ONLY if look_only else take.max_wait_us, len(take.charges)))
        for charge in take.charges:
            number = quotas.setdefault(charge.quota, len(quotas) + 1)
            packed.append(_CHARGE.pack(number, charge.cost))
    return b"".join(map(_packed_quota, quotas)), b"".join(packed)


def decode(takes: Sequence[Take], reply: Reply) -> list[Decision]:
    """The decisions of the takes, from the script's reply.

    Raises ``StoreError`` where the script decided otherwise than ``decide`` does over the same states.
    """
    now, verdicts, values = _parts(takes, reply)
    decisions, at = [], 0
    for take, verdict in zip(takes, verdicts, strict=True):
        stop = at + len(take.charges)
        decision, _ = decide(take, _states(take.charges, values[at:stop]), now)
        if decision.allowed != (verdict == ord("1")):
            raise StoreError(f"the script decided {verdict:c} on {take!r}, where {decision!r} was due")
        decisions.append(decision)
        at = stop
    return decisions


def decode_look(take: Take, reply: Reply, foresee: Callable[..., Decision]) -> Decision:
    """What ``take`` would be told, from the script's reply to a look."""
    now, _, values = _parts([take], reply)
    return foresee(take, _states(take.charges, values), now)


def _parts(takes: Sequence[Take], reply: Reply) -> tuple[float, bytes, Reply]:
    now, verdicts, *values = reply
    if now is None or verdicts is None or len(values) != sum(len(take.charges) for take in takes):
        raise StoreError(f"the script's reply has the wrong shape: {reply!r}")
    return float(now), verdicts, values


def _states(charges: Sequence[Charge], values: Reply) -> list[State | None]:
    return [_state(charge.quota, value) for charge, value in zip(charges, values, strict=True)]


def _state(quota: Quota, value: bytes | None) -> State | None:
    """The state in a stored value; a foreign format, or another period, counts as never used."""
    if value is None or len(value) != 21 or value[:5] != _stamp(quota):
        return None
    return _STATE.unpack_from(value, 5)


@lru_cache(maxsize=4096)
def _packed_quota(quota: Quota) -> bytes:
    return _QUOTA.pack(1, quota.period_us, quota.limit, quota.slow, quota.cap, quota.line, quota.burst)


@lru_cache(maxsize=4096)
def _stamp(quota: Quota) -> bytes:
    return _STAMP.pack(FORMAT, quota.period_us)
