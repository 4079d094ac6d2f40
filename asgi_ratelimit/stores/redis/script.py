"""What travels between ``RedisStore`` and ``rate_limit.lua``: packed takes and settlements there, values of keys back.

The script answers with the value that each charge met, and its verdict. The decision is worked out here from that, by
the same ``decide`` that a memory store calls. So a reply is short, and both stores give equal decisions.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypeAlias

from ...algorithms import ALGORITHMS, Outcome, State, current, decide, foresee, unpack
from ...decision import Charge, Decision, Settlement, Take
from ...errors import StoreError
from ...quotas import FixedWindow, Quota, RollingWindow, TokenBucket

Reply: TypeAlias = Sequence[bytes | None]
StatesByBucket: TypeAlias = dict[str, tuple[Quota, State]]
"""The quota that a bucket was last charged under, and the state that it is in."""

logger = logging.getLogger("asgi_ratelimit")


@dataclass(slots=True)
class Peek:
    """A request for the answer that a take would get."""

    take: Take

    @property
    def charges(self) -> tuple[Charge, ...]:
        return self.take.charges


@dataclass(slots=True)
class Reset:
    """A request to forget the buckets of these charges."""

    charges: Sequence[Charge]


Action: TypeAlias = Charge | Take | Peek | Settlement | Reset
"""A charge stands for a take of it alone, without a wait."""

Answer: TypeAlias = Outcome | Decision | None
"""The outcome of a charge; the decision of a take or peek; ``None`` for all else."""


TAKE, BEST_EFFORT, SETTLE, RESET = 1, 2, 3, 4
MAY_SETTLE = 16
"""Added to the byte of a take that may be settled."""
PEEK_US = -1.0
"""In the place of the longest wait: evaluate, but write nothing."""
_YES = ord("1")
_TEXTS = {bytes, type(None)}

_QUOTA = struct.Struct("<13sdddddd")
_ACTION = struct.Struct("<BHdH")
_CHARGE = struct.Struct("<Hd")
_SETTLED = struct.Struct("<Hdddddd")


class Disagreements:
    """How often the script and Python decided differently over the same states. The script's verdict stands."""

    count = 0


def encode(prefix: bytes, actions: Sequence[Action]) -> tuple[list[bytes], bytes, bytes]:
    """The keys of all charges, the distinct quotas, each once, and the actions, as the script expects them.

    Takes of one charge that follow one another, and are equal but for their keys, travel once.
    """
    keys: list[bytes] = []
    start = prefix + b":"
    runs: list[list[Any]] = []  # an action, and how many there are of it
    quota = cost = None
    for action in actions:
        if type(action) is Charge:
            keys.append(start + action.bucket.encode())
            if action.quota is quota and action.cost == cost:
                runs[-1][1] += 1
            else:
                quota, cost = action.quota, action.cost
                runs.append([action, 1])
        else:
            keys += [start + charge.bucket.encode() for charge in charges_of(action)]
            runs.append([action, 1])
            quota = None
    numbers: dict[Quota, int] = {}
    packed = b"".join([_PACKERS[type(action)](action, count, numbers) for action, count in runs])
    return keys, b"".join(map(_packed_quota, numbers)), packed


def charges_of(action: Action) -> Sequence[Charge]:
    """The charges of an action."""
    return (action,) if isinstance(action, Charge) else action.charges


def _packed_charge(charge: Charge, count: int, numbers: dict[Quota, int]) -> bytes:
    return _packed_charges(TAKE, count, 0.0, (charge,), numbers)


def _packed_take(take: Take, count: int, numbers: dict[Quota, int]) -> bytes:
    return _packed_charges(_kind(take), count, take.max_wait_us, take.charges, numbers)


def _packed_peek(peek: Peek, count: int, numbers: dict[Quota, int]) -> bytes:
    return _packed_charges(_kind(peek.take), count, PEEK_US, peek.charges, numbers)


def _kind(take: Take) -> int:
    return (BEST_EFFORT if take.best_effort else TAKE) + (MAY_SETTLE if take.may_settle else 0)


def _packed_charges(
    kind: int, count: int, max_wait_us: float, charges: Sequence[Charge], numbers: dict[Quota, int]
) -> bytes:
    packed = [_CHARGE.pack(_number(charge.quota, numbers), charge.cost) for charge in charges]
    return _ACTION.pack(kind, count, max_wait_us, len(packed)) + b"".join(packed)


def _packed_settlement(settlement: Settlement, count: int, numbers: dict[Quota, int]) -> bytes:
    packed = [_ACTION.pack(SETTLE, count, settlement.id, len(settlement.settled_charges))]
    for each in settlement.settled_charges:
        number = _number(each.charge.quota, numbers)
        booked = (each.since_us, each.generation, each.place, each.slot_us)
        packed.append(_SETTLED.pack(number, each.charge.cost, each.actual, *booked))
    return b"".join(packed)


def _packed_reset(reset: Reset, count: int, numbers: dict[Quota, int]) -> bytes:
    packed = [_CHARGE.pack(_number(charge.quota, numbers), 0.0) for charge in reset.charges]
    return _ACTION.pack(RESET, count, 0.0, len(packed)) + b"".join(packed)


def _number(quota: Quota, numbers: dict[Quota, int]) -> int:
    return numbers.setdefault(quota, len(numbers) + 1)


_PACKERS: dict[type, Callable[[Any, int, dict[Quota, int]], bytes]] = {
    Charge: _packed_charge,
    Take: _packed_take,
    Peek: _packed_peek,
    Settlement: _packed_settlement,
    Reset: _packed_reset,
}


def decode(actions: Sequence[Action], reply: Reply, births: int) -> tuple[list[Answer], StatesByBucket]:
    """From the script's reply, the answer to each action, and the states of the buckets now.

    A state that was made for charge number i of the call is of the generation ``births + i``, counted from 1.

    There are fewer answers than actions where the script stopped at its bound of work: the rest is to be sent again.
    Raises ``StoreError`` where the reply makes no sense.
    """
    now, verdicts, values = _parts(reply)
    answers: list[Answer] = []
    after: StatesByBucket = {}
    remaining = iter(values)
    try:
        for action, verdict in zip(actions, verdicts):
            if type(action) is Charge:
                births += 1
                answers.append(_outcome(action, verdict, next(remaining), now, births, after))
            else:
                answers.append(_answer(action, verdict, remaining, now, births + 1, after))
                births += len(charges_of(action))
    except StopIteration:
        raise _nonsense(reply) from None
    if len(verdicts) > len(actions) or not verdicts or next(remaining, remaining) is not remaining:
        raise _nonsense(reply)
    return answers, after


def _outcome(
    charge: Charge, verdict: int, value: bytes | None, now: float, birth: int, after: StatesByBucket
) -> Outcome | Decision:
    """The outcome of a charge; its new state is added to ``after``."""
    quota = charge.quota
    algorithm = ALGORITHMS[type(quota)]
    stored = unpack(quota, value)
    state = algorithm.fresh(now, birth) if stored is None else stored
    if state[1] > now:
        state = current(quota, state, now, birth)
    taken = left, _, _ = algorithm.take(quota, state, now, charge.cost, 0.0)
    if (left is not None) != (verdict == _YES):
        decision, _ = decide(Take((charge,)), [state], now)
        return _as_decided(decision, verdict == _YES)
    if left is not None or stored is not None:
        after[charge.bucket] = (quota, state if left is None else left)
    return taken, state, now


def _answer(
    action: Action, verdict: int, values: Iterator[bytes | None], now: float, birth: int, after: StatesByBucket
) -> Decision | None:
    """The decision of an action, whose values are the next; the states that it leaves are added to ``after``."""
    charges = charges_of(action)
    states = [unpack(charge.quota, next(values)) for charge in charges]
    if isinstance(action, Peek):
        return foresee(action.take, states, now)
    if not isinstance(action, Take):
        return None
    decision, written = decide(action, states, now, birth)
    if decision.allowed != (verdict == _YES):
        return _as_decided(decision, verdict == _YES)
    for charge, state, found in zip(charges, written, states):
        left = found if state is None else state
        if left is not None:
            after[charge.bucket] = (charge.quota, left)
    return decision


def _as_decided(decision: Decision, allowed: bool) -> Decision:
    """A decision with the verdict of the script, which is what was written."""
    Disagreements.count += 1
    logger.error("the script allowed=%s where %r was expected; the script's verdict stands", allowed, decision)
    take = decision.take
    if allowed and take is not None:
        return replace(decision, allowed=True, granted=take.charges[0].cost, retry_after=0.0, before=None)
    return replace(decision, allowed=False, granted=0, delay=0.0, retry_after=1e-6, before=None)


def _parts(reply: object) -> tuple[float, bytes, Reply]:
    """The time, the verdicts and the values in a reply, whatever it is."""
    if isinstance(reply, list) and len(reply) >= 3 and _TEXTS.issuperset(map(type, reply)):
        now, _, verdicts, *values = reply
        try:
            if verdicts is not None:
                return float(now), verdicts, values
        except (TypeError, ValueError):  # no time at all
            pass
    raise _nonsense(reply)


def _nonsense(reply: object) -> StoreError:
    return StoreError(f"the script's reply has the wrong shape: {reply!r:.200}")


@lru_cache(maxsize=4096)
def _packed_quota(quota: Quota) -> bytes:
    return _QUOTA.pack(quota.stamp, quota.period_us, quota.limit, quota.most, *_own_numbers(quota))


def _own_numbers(quota: Quota) -> tuple[float, float, float]:
    match quota:
        case TokenBucket():
            return quota.slow_rate, quota.burst_level, quota.burst_floor
        case RollingWindow():
            return quota.buckets, quota.part_us, 0.0
        case FixedWindow():
            return 0.0, 0.0, 0.0
