"""What travels to the script and back: actions as bytes, and the answers in its reply.

``rate_limit.lua`` says what the bytes are. No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import TypeAlias

from ...algorithms import FIXED_WINDOW, IN_FLIGHT, ROLLING_WINDOW, TOKEN_BUCKET
from ...algorithms.take import read, read_own
from ...decision import Charge, Decision, Take
from ...errors import StoreUnavailable
from ...quotas import FixedWindow, InFlight, Quota, TokenBucket
from ..base import Decisions, Settled, Settlement, granting, operation_text

SCRIPT = files("asgi_ratelimit.stores.redis").joinpath("rate_limit.lua").read_text("utf-8")
SCRIPT_SHA = hashlib.sha1(SCRIPT.encode(), usedforsecurity=False).hexdigest()

# The flags of a take.
BEST_EFFORT, OPERATION, PEEK = 1, 2, 4

# The flags of a settlement: an operation is undone, and nothing is remembered of the settlement itself.
UNDONE, FORGOTTEN = 1, 2

# The verdicts of a reply; 1 is an allowed take.
REFUSED, REPEATED, FAILED = 0, 2, 9

# The id of a peek, which charges nothing.
PEEK_ID = 0

# The mark of a call, the time, and the least times to live of a bucket and of an operation.
HEAD = struct.Struct("<8s3d")
_COUNT = struct.Struct("<H")
_QUOTA = struct.Struct("<BI6d")
# An action: its number of charges (0: a settlement), a charge, flags and a time.
_ACTION = struct.Struct("<BHdBd")
_CHARGE = struct.Struct("<Hd")
_SETTLEMENT = struct.Struct("<5d")
_TAKEN = struct.Struct("<Bdd")
_REPEATED = struct.Struct("<dd")
_SETTLED = struct.Struct("<Bd")
_DOUBLE = struct.Struct("<d")


@dataclass(slots=True)
class NumberedTake:
    """A take, and the id of its decision; ``PEEK_ID`` asks what it would be answered now.

    ``is_part`` says that it is a part of a take over several nodes.
    """

    take: Take
    id: int
    is_part: bool = False


Action: TypeAlias = NumberedTake | Settlement

# A take and a peek are answered with one decision.
Answer: TypeAlias = Decisions | Settled | StoreUnavailable


def charges_of(action: Action) -> Sequence[Charge]:
    """The charges whose buckets an action is about."""
    return action.take.charges if isinstance(action, NumberedTake) else (action.charge,)


def encode(prefix: str, actions: Sequence[Action]) -> tuple[list[bytes], bytes]:
    """The keys of one call of the script, and what follows the head of its argument."""
    keys: list[bytes] = []
    numbers: dict[int, int] = {}
    quotas: list[bytes] = []
    parts: list[bytes] = []

    for action in actions:
        charges = charges_of(action)
        for charge in charges:
            if id(charge.quota) not in numbers:
                quotas.append(_packed_quota(charge.quota))
                numbers[id(charge.quota)] = len(quotas)
            keys.append(f"{prefix}:{charge.bucket}".encode())
        first = charges[0]
        number = numbers[id(first.quota)]
        if isinstance(action, NumberedTake):
            take = action.take
            flags = BEST_EFFORT * take.best_effort + OPERATION * (take.operation is not None) + PEEK * (not action.id)
            parts.append(_ACTION.pack(len(charges), number, first.cost, flags, take.max_wait_us))
            if len(charges) > 1:
                parts.extend([_CHARGE.pack(numbers[id(charge.quota)], charge.cost) for charge in charges[1:]])
            if take.operation is not None:
                parts.append(_DOUBLE.pack(action.id))
                keys.append(f"{prefix}:{operation_text(take)}".encode())
            continue
        keys.append(f"{prefix}:{action.text}".encode())
        if action.undone is not None:
            keys.append(f"{prefix}:{operation_text(action.undone)}".encode())
        flags = UNDONE * (action.undone is not None) + FORGOTTEN * (action.id == 0)
        parts.append(_ACTION.pack(0, number, action.booked.cost, flags, action.until_us))
        parts.append(_SETTLEMENT.pack(*action.booked[:3], action.actual, action.token))
    return keys, b"".join([_COUNT.pack(len(quotas)), *quotas, *parts])


def decode(actions: Sequence[Action], reply: bytes, mark: bytes) -> list[Answer]:
    """The answers to actions in the script's reply to the call with this mark.

    Raises ``StoreUnavailable`` for anything else.
    """
    answers: list[Answer] = []
    at = len(mark) + _DOUBLE.size
    if not (isinstance(reply, bytes) and len(reply) >= at and reply.startswith(mark)):
        raise StoreUnavailable(f"Redis answered {reply!r:.100}, which is not the reply to this call")
    (called_us,) = _DOUBLE.unpack_from(reply, len(mark))
    try:
        for action in actions:
            if reply[at] == FAILED:
                text, at = _value(reply, at + 1)
                answers.append(StoreUnavailable((text or b"").decode("utf-8", "replace")))
            elif isinstance(action, NumberedTake):
                take, stored, now, own_id = action.take, [], called_us, action.id
                verdict, wait, granted = _TAKEN.unpack_from(reply, at)
                at += _TAKEN.size
                if verdict == REPEATED:
                    now, own_id = _REPEATED.unpack_from(reply, at)
                    at, own_id = at + _REPEATED.size, int(own_id)
                for charge in take.charges:
                    value, at = _value(reply, at)
                    read_state = read if verdict == REPEATED else read_own  # the script has checked all but old ones
                    stored.append(read_state(charge.quota, value, now))
                if granted:
                    take = granting(take, int(granted) if granted.is_integer() else granted)
                if verdict == REFUSED or action.id == PEEK_ID:
                    own_id = 0
                decision = Decision(take, verdict != REFUSED, wait, stored, now, own_id)
                if verdict == REPEATED:
                    decision.repeated, decision.asked_us = True, called_us
                answers.append(Decisions((decision,)))
            else:
                is_first, now = _SETTLED.unpack_from(reply, at)
                value, at = _value(reply, at + _SETTLED.size)
                answers.append(Settled(is_first == 1, now, read(action.charge.quota, value, now)))
    except (struct.error, IndexError, TypeError) as error:
        raise StoreUnavailable(f"Redis answered {reply!r:.100}, which makes no sense") from error
    if at != len(reply):  # or the last value is cut
        raise StoreUnavailable(f"Redis answered {reply!r:.100}, which is too long or too short")
    return answers


def _value(reply: bytes, at: int) -> tuple[bytes | None, int]:
    """The value at an offset of the reply, ``None`` for an empty one, and the offset behind it."""
    start = at + _COUNT.size
    end = start + (reply[at] | reply[at + 1] << 8)
    return reply[start:end] or None, end


@lru_cache(maxsize=4096)
def _packed_quota(quota: Quota) -> bytes:
    if isinstance(quota, TokenBucket):
        kind, numbers = TOKEN_BUCKET, (quota.limit, quota.period_us, quota.burst, quota.rate, quota.slow_rate)
    elif isinstance(quota, FixedWindow):
        kind, numbers = FIXED_WINDOW, (quota.limit, quota.period_us, quota.limit, 0.0, 0.0)
    elif isinstance(quota, InFlight):
        kind, numbers = IN_FLIGHT, (quota.limit, quota.period_us, quota.retry_us, 0.0, 0.0)
    else:
        kind, numbers = ROLLING_WINDOW, (quota.limit, quota.part_us, float(quota.buckets), 0.0, 0.0)
    return _QUOTA.pack(kind, quota.stamp, *numbers, quota.slack)
