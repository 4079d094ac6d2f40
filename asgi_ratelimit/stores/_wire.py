"""What travels between ``RedisStore`` and ``rate_limit.lua``: packed takes and settlements there, values of keys back.

The script answers with the state that each charge found, and the decision is worked out here from that, by the same
``decide`` that a memory store calls. So a reply is short, and both stores give equal decisions by construction.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

from ..algorithms import State, decide, foresee
from ..decision import Charge, Decision, Settlement, Take
from ..errors import StoreError
from ..quotas import FixedWindow, Quota, RollingWindow, TokenBucket

Reply: TypeAlias = Sequence[bytes | None]

FORMATS: dict[type, int] = {TokenBucket: 1, FixedWindow: 2, RollingWindow: 3}
"""The first byte of a stored value: how the rest is packed."""

TAKE, BEST_EFFORT, SETTLE = 1, 2, 3
LOOK_ONLY = -1.0

_QUOTA = struct.Struct("<Bdddddd")
_ACTION = struct.Struct("<BdH")
_CHARGE = struct.Struct("<Hd")
_SETTLED = struct.Struct("<Hddddd")
_STAMP = struct.Struct("<Bf")
_HEAD = struct.Struct("<BfdH")
_LEVEL = struct.Struct("<d")
_PAIR = struct.Struct("<dd")
_PARTS = struct.Struct("<H")
_TAIL = struct.Struct("<BB")


def encode(takes: Sequence[Take], *, look_only: bool = False) -> tuple[bytes, bytes]:
    """The distinct quotas, each once, and the takes, as the script's first two arguments."""
    quotas: dict[Quota, int] = {}
    packed = []
    for take in takes:
        action = BEST_EFFORT if take.best_effort else TAKE
        packed.append(_ACTION.pack(action, LOOK_ONLY if look_only else take.max_wait_us, len(take.charges)))
        for charge in take.charges:
            number = quotas.setdefault(charge.quota, len(quotas) + 1)
            packed.append(_CHARGE.pack(number, charge.cost))
    return b"".join(map(_packed_quota, quotas)), b"".join(packed)


def encode_settlement(settlement: Settlement) -> tuple[bytes, bytes]:
    """The distinct quotas, each once, and the settlement, as the script's first two arguments."""
    quotas: dict[Quota, int] = {}
    packed = [_ACTION.pack(SETTLE, settlement.id, len(settlement.lines))]
    for line in settlement.lines:
        number = quotas.setdefault(line.charge.quota, len(quotas) + 1)
        packed.append(_SETTLED.pack(number, line.charge.cost, line.actual, line.since_us, line.era, line.place))
    return b"".join(map(_packed_quota, quotas)), b"".join(packed)


def decode(takes: Sequence[Take], reply: Reply) -> list[Decision]:
    """The decisions of the takes, from the script's reply.

    Raises ``StoreError`` where the script decided otherwise than ``decide`` does over the same states.
    """
    now, verdicts, values = _parts(reply, sum(len(take.charges) for take in takes))
    decisions, at = [], 0
    for take, verdict in zip(takes, verdicts):
        stop = at + len(take.charges)
        decision, _ = decide(take, _states(take.charges, values[at:stop]), now)
        if decision.allowed != (verdict == ord("1")):
            raise StoreError(f"the script decided {verdict:c} on {take!r}, where {decision!r} was due")
        decisions.append(decision)
        at = stop
    return decisions


def decode_look(take: Take, reply: Reply) -> Decision:
    """What ``take`` would be told, from the script's reply to a look."""
    now, _, values = _parts(reply, len(take.charges))
    return foresee(take, _states(take.charges, values), now)


def _parts(reply: Reply, charges: int) -> tuple[float, bytes, Reply]:
    now, verdicts, *values = reply
    if now is None or verdicts is None or len(values) != charges:
        raise StoreError(f"the script's reply has the wrong shape: {reply!r}")
    return float(now), verdicts, values


def _states(charges: Sequence[Charge], values: Reply) -> list[State | None]:
    return [unpack_state(charge.quota, value) for charge, value in zip(charges, values)]


def unpack_state(quota: Quota, value: bytes | None) -> State | None:
    """The state in a stored value; a foreign format, or another period, counts as never used."""
    if value is None or len(value) < 23 or value[:5] != _stamp(quota):
        return None
    _, _, last, era = _HEAD.unpack_from(value)
    core: Any
    if value[0] == 1:
        core, at = _LEVEL.unpack_from(value, _HEAD.size)[0], _HEAD.size + _LEVEL.size
    elif value[0] == 2:
        core, at = _PAIR.unpack_from(value, _HEAD.size), _HEAD.size + _PAIR.size
    else:
        start = _HEAD.size + _PARTS.size
        at = start + _PARTS.unpack_from(value, _HEAD.size)[0] * _PAIR.size
        core = tuple(_PAIR.iter_unpack(value[start:at]))
    return (core, last, float(era), *_tail(value, at))


def _tail(value: bytes, at: int) -> tuple[Any, Any]:
    if at == len(value):
        return (), ()
    holes, ids = _TAIL.unpack_from(value, at)
    start = at + _TAIL.size
    stop = start + holes * _PAIR.size
    return tuple(_PAIR.iter_unpack(value[start:stop])), struct.unpack_from(f"<{ids}d", value, stop)


@lru_cache(maxsize=4096)
def _packed_quota(quota: Quota) -> bytes:
    numbers = (quota.period_us, quota.limit, quota.most, *_own_numbers(quota))
    return _QUOTA.pack(FORMATS[type(quota)], *numbers)


def _own_numbers(quota: Quota) -> Iterator[float]:
    if isinstance(quota, TokenBucket):
        yield from (quota.slow, quota.cap, quota.line)
    elif isinstance(quota, RollingWindow):
        yield from (quota.buckets, quota.part_us, 0.0)
    else:
        yield from (0.0, 0.0, 0.0)


@lru_cache(maxsize=4096)
def _stamp(quota: Quota) -> bytes:
    return _STAMP.pack(FORMATS[type(quota)], quota.period_us)
