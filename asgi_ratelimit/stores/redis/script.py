"""What travels between ``RedisStore`` and ``rate_limit.lua``: packed takes and settlements there, values of keys back.

The script answers with the state that each charge found, and the decision is worked out here from that, by the same
``decide`` that a memory store calls. So a reply is short, and both stores give equal decisions by construction.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from operator import attrgetter
from typing import Any, TypeAlias

from ...algorithms import State, decide, decide_simple, foresee, known
from ...buckets import redis_key_of
from ...decision import Bucket, Charge, Decision, Settlement, Take
from ...errors import StoreError
from ...quotas import FixedWindow, Quota, RollingWindow, TokenBucket

Reply: TypeAlias = Sequence[bytes | None]
Known: TypeAlias = dict[Bucket, tuple[Quota, State]]
"""The quota that a bucket was last charged under, and the state that it is in."""


@dataclass(slots=True)
class Look:
    """To be told what a take would be told."""

    take: Take

    @property
    def charges(self) -> tuple[Charge, ...]:
        return self.take.charges


@dataclass(slots=True)
class Reset:
    """To forget the buckets of these charges."""

    charges: Sequence[Charge]


Action: TypeAlias = Take | Look | Settlement | Reset

FORMATS: dict[type, int] = {TokenBucket: 1, FixedWindow: 2, RollingWindow: 3}
"""The first byte of a stored value: how the rest is packed."""

TAKE, BEST_EFFORT, SETTLE, RESET, TAKE_LATER = 1, 2, 3, 4, 5
LOOK_ONLY = -1.0
_CHARGES = attrgetter("charges")
_TEXTS = {bytes, type(None)}
_YES = ord("1")

_QUOTA = struct.Struct("<Bfdddddd")
_ACTION = struct.Struct("<BHdH")
_CHARGE = struct.Struct("<Hd")
_SETTLED = struct.Struct("<Hddddd")
_STAMP = struct.Struct("<Bf")
_HEAD = struct.Struct("<BfdH")
_BARE = struct.Struct("<5sdHd")
_BARE_SIZE = _BARE.size
_LEVEL = struct.Struct("<d")
_PAIR = struct.Struct("<dd")
_LENGTH = struct.Struct("<H")
_PARTS = struct.Struct("<HH")
_TAIL = struct.Struct("<BB")


def encode(prefix: bytes, actions: Sequence[Action]) -> tuple[list[bytes], bytes, bytes]:
    """The keys of all charges, the distinct quotas, each once, and what to do, as the script wants them.

    Takes of one charge that follow one another, and are equal but for their keys, travel once.
    """
    keys: list[bytes] = []
    runs: list[list[Any]] = []  # an action, and how many there are of it
    quota = cost = wait_us = None
    for action in actions:
        if type(action) is not Take or action.only is None:
            keys += [_key_of(prefix, charge) for charge in action.charges]
            runs.append([action, 1])
            quota = None
            continue
        charge = action.only
        kept = charge.stored_under
        keys.append(kept[1] if kept is not None and kept[0] is prefix else _key_of(prefix, charge))
        if charge.quota is quota and charge.cost == cost and action.max_wait_us == wait_us:
            runs[-1][1] += 1
            continue
        quota, cost, wait_us = charge.quota, charge.cost, action.max_wait_us
        runs.append([action, 1])
    numbers: dict[Quota, int] = {}
    packed = b"".join([_PACKERS[type(action)](action, count, numbers) for action, count in runs])
    return keys, b"".join(map(_packed_quota, numbers)), packed


def _key_of(prefix: bytes, charge: Charge) -> bytes:
    """The key of a charge, kept with it: the charges of a middleware come again."""
    kept = charge.stored_under
    if kept is None or kept[0] is not prefix:
        kept = charge.stored_under = (prefix, redis_key_of(prefix, charge.bucket))
    return kept[1]


def _packed_take(take: Take, count: int, numbers: dict[Quota, int]) -> bytes:
    if take.soonest_us:
        return _packed_charges(TAKE_LATER, count, take.soonest_us, take.charges, numbers)
    return _packed_charges(BEST_EFFORT if take.best_effort else TAKE, count, take.max_wait_us, take.charges, numbers)


def _packed_look(look: Look, count: int, numbers: dict[Quota, int]) -> bytes:
    kind = BEST_EFFORT if look.take.best_effort else TAKE
    return _packed_charges(kind, count, LOOK_ONLY, look.charges, numbers)


def _packed_charges(
    kind: int, count: int, max_wait_us: float, charges: Sequence[Charge], numbers: dict[Quota, int]
) -> bytes:
    lines = [_CHARGE.pack(_number(charge.quota, numbers), charge.cost) for charge in charges]
    return _ACTION.pack(kind, count, max_wait_us, len(lines)) + b"".join(lines)


def _packed_settlement(settlement: Settlement, count: int, numbers: dict[Quota, int]) -> bytes:
    packed = [_ACTION.pack(SETTLE, count, settlement.id, len(settlement.lines))]
    for line in settlement.lines:
        number = _number(line.charge.quota, numbers)
        packed.append(_SETTLED.pack(number, line.charge.cost, line.actual, line.since_us, line.era, line.place))
        for state in (line.before, line.after):
            value = b"" if state is None else pack_state(line.charge.quota, state)
            packed.append(_LENGTH.pack(len(value)) + value)
    return b"".join(packed)


def _packed_reset(reset: Reset, count: int, numbers: dict[Quota, int]) -> bytes:
    lines = [_CHARGE.pack(_number(charge.quota, numbers), 0.0) for charge in reset.charges]
    return _ACTION.pack(RESET, count, 0.0, len(lines)) + b"".join(lines)


def _number(quota: Quota, numbers: dict[Quota, int]) -> int:
    return numbers.setdefault(quota, len(numbers) + 1)


_PACKERS: dict[type, Callable[[Any, int, dict[Quota, int]], bytes]] = {
    Take: _packed_take,
    Look: _packed_look,
    Settlement: _packed_settlement,
    Reset: _packed_reset,
}


def decode(actions: Sequence[Action], reply: Reply) -> tuple[list[Decision | None], Known]:
    """From the script's reply, the decision of each take and look, ``None`` for all else, and what is known now.

    Raises ``StoreError`` where that makes no sense, or the script decided otherwise than ``decide`` does over the same
    states.
    """
    now, verdicts, values = _parts(reply)
    if len(verdicts) != len(actions) or len(values) != sum(map(len, map(_CHARGES, actions))):
        raise StoreError(f"the script's reply has the wrong shape: {reply!r}")
    decisions: list[Decision | None] = []
    kept: Known = {}
    due, quota, stamp, unused = iter(values), None, b"", None
    for action, verdict in zip(actions, verdicts):
        if type(action) is not Take or action.only is None:
            decisions.append(_decision(action, verdict, due, now, kept))
            continue
        charge = action.only
        if charge.quota is not quota:  # as a rule, it is that of the take before
            quota = charge.quota
            stamp, unused = _stamp(quota) if type(quota) is TokenBucket else b"", known(quota, None, now)
        value = next(due)
        state: State | None = unused  # which is what a take finds where nothing is kept
        if value is not None:
            if len(value) == _BARE_SIZE:  # what nearly all are: a token bucket with nothing more to it
                found, last, era, level = _BARE.unpack(value)
                if found == stamp:
                    state = (level, last, era, (), ())
            else:
                state = unpack_state(quota, value)
        decision, left = decide_simple(action, charge, state, now)
        if decision.allowed != (verdict == _YES):
            raise _disagreement(action, verdict, decision)
        decisions.append(decision)
        state = state if left is None else left
        if state is not None:
            kept[charge.bucket] = (quota, state)
    return decisions, kept


def _decision(action: Action, verdict: int, due: Iterator[bytes | None], now: float, kept: Known) -> Decision | None:
    """What came of an action, whose values are the next; in what state it leaves its buckets goes to ``kept``."""
    charges = action.charges
    states = [unpack_state(charge.quota, value) for charge, value in zip(charges, islice(due, len(charges)))]
    if type(action) is Look:
        return foresee(action.take, states, now)
    if type(action) is not Take:
        return None
    decision, left = decide(action, states, now)
    if decision.allowed != (verdict == _YES):
        raise _disagreement(action, verdict, decision)
    for charge, found, written in zip(charges, states, left):
        state = found if written is None else written
        if state is not None:
            kept[charge.bucket] = (charge.quota, state)
    return decision


def _disagreement(take: Take, verdict: int, decision: Decision) -> StoreError:
    return StoreError(f"the script decided {verdict:c} on {take!r}, where {decision!r} was due")


def _parts(reply: object) -> tuple[float, bytes, Reply]:
    """The time, the verdicts and the values in a reply, whatever it is."""
    if isinstance(reply, list) and len(reply) >= 2 and reply[1] is not None and _TEXTS.issuperset(map(type, reply)):
        now, verdicts, *values = reply
        try:
            return float(now), verdicts, values
        except (TypeError, ValueError):  # no time at all
            pass
    raise StoreError(f"the script's reply has the wrong shape: {reply!r}")


def unpack_state(quota: Quota, value: bytes | None) -> State | None:
    """The state in a stored value; a foreign format, or another period, counts as never used."""
    if value is None or len(value) < 19 or value[:5] != _stamp(quota):
        return None
    try:
        return _unpacked(quota, value)
    except struct.error:  # cut short, by whomever
        return None


def _unpacked(quota: Quota, value: bytes) -> State | None:
    if len(value) == _BARE_SIZE and value[0] == 1:
        _, last, era, level = _BARE.unpack(value)
        return (level, last, era, (), ())
    _, _, last, era = _HEAD.unpack_from(value)
    core: Any
    if value[0] == 1:
        core, at = _LEVEL.unpack_from(value, _HEAD.size)[0], _HEAD.size + _LEVEL.size
    elif value[0] == 2:
        core, at = _PAIR.unpack_from(value, _HEAD.size), _HEAD.size + _PAIR.size
    else:
        start = _HEAD.size + _PARTS.size
        buckets, parts = _PARTS.unpack_from(value, _HEAD.size)
        if not isinstance(quota, RollingWindow) or buckets != quota.buckets:
            return None
        at = start + parts * _PAIR.size
        core = tuple(_PAIR.iter_unpack(value[start:at]))
    return (core, last, era, *_tail(value, at))


def pack_state(quota: Quota, state: State) -> bytes:
    """A state as it is stored, but for its ids."""
    core, last, era, holes, _ = state
    head = _HEAD.pack(FORMATS[type(quota)], quota.period_us, last, int(era))
    if isinstance(quota, TokenBucket):
        body = _LEVEL.pack(core)
    elif isinstance(quota, RollingWindow):
        body = _PARTS.pack(quota.buckets, len(core)) + b"".join([_PAIR.pack(*part) for part in core])
    else:
        body = _PAIR.pack(*core)
    return head + body + (_TAIL.pack(len(holes), 0) + b"".join([_PAIR.pack(*hole) for hole in holes]) if holes else b"")


def _tail(value: bytes, at: int) -> tuple[Any, Any]:
    if at == len(value):
        return (), ()
    holes, ids = _TAIL.unpack_from(value, at)
    start = at + _TAIL.size
    stop = start + holes * _PAIR.size
    return tuple(_PAIR.iter_unpack(value[start:stop])), struct.unpack_from(f"<{ids}d", value, stop)


@lru_cache(maxsize=4096)
def _packed_quota(quota: Quota) -> bytes:
    numbers = (quota.period_us, quota.period_us, quota.limit, quota.most, *_own_numbers(quota))
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
    """How a value of this quota starts."""
    return _STAMP.pack(FORMATS[type(quota)], quota.period_us)
