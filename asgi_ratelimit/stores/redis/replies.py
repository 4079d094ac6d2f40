"""What comes back from ``rate_limit.lua``: verdicts, and values of keys, from which the answers are worked out.

The script answers with the value that each charge met, and its verdict. The decision is worked out here from that, by
the same ``decide`` that a memory store calls. So a reply is short, and both stores give equal decisions.
"""

from __future__ import annotations

import logging
import math
import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

from ...algorithms import (
    ALGORITHMS,
    Outcome,
    State,
    admit,
    current,
    decide,
    foresee,
    reset_us,
    settle,
    settlement_of,
    unpack,
)
from ...algorithms.packed import PLAIN_SIZE, unpack_plain
from ...decision import Decision, Redemption, SettledCharge, Settlement, Take
from ...errors import StoreError
from ...logs import FailureLog
from ...quotas import FixedWindow, Quota, TokenBucket
from ..operations import as_allowed, decided_again, redeemed
from .actions import Action, Answer, BucketCharge, Peek, Repayment, Reset, charges_of, operation_keys

Reply: TypeAlias = Sequence[bytes | None]
StatesByBucket: TypeAlias = dict[str, tuple[Quota, State]]
"""The quota that a bucket was last charged under, and the state that it is in."""

logger = logging.getLogger("asgi_ratelimit")

unreadable = FailureLog()
"""What is stored in Redis and cannot be read."""

_YES, _AGAIN = ord("1"), ord("2")
_TEXTS = {bytes, type(None)}

_RECORD = struct.Struct("<dddd")
_LENGTH = struct.Struct("<I")


class Disagreements:
    """How often the script and Python decided differently over the same states. The script's verdict stands."""

    count = 0


def decode(actions: Sequence[Action], reply: Reply, births: int) -> tuple[list[Answer | StoreError], StatesByBucket]:
    """From the script's reply, the answer to each action, and the states of the buckets now.

    A state that was made for key number i of the call is of the generation ``births + i``, counted from 1.
    There are fewer answers than actions where the script stopped at its bound of work: the rest is to be sent again.
    An action whose values cannot be read is answered with a ``StoreError``, which is logged, once a minute.
    Raises ``StoreError`` where the reply makes no sense.
    """
    now, verdicts, values = _parts(reply)
    answers: list[Answer | StoreError] = []
    after: StatesByBucket = {}
    at = 0
    for action, verdict in zip(actions, verdicts):
        first, birth = at, births + at + 1
        try:
            if type(action) is tuple:
                at += 1
                answers.append(_outcome(action, verdict, values[first], now, birth, after))
            else:
                at += operation_keys(action) + len(charges_of(action))
                answers.append(_answer(action, verdict, values[first:at], now, birth, after))
        except Exception as error:  # noqa: BLE001  # what is stored is anything: it concerns this action alone
            raised = _unreadable(action, error)
            answers.append([] if type(action) is Repayment else raised)  # a repayment has been carried out
    if len(verdicts) > len(actions) or not verdicts or at != len(values):
        raise _nonsense(reply)
    return answers, after


def _unreadable(action: Action, error: Exception) -> StoreError:
    """What answers an action over values that cannot be read."""
    buckets = ", ".join([repr(charge.bucket) for charge in charges_of(action)])
    raised = StoreError(f"what Redis has stored of {buckets} cannot be read: {error!r:.200}")
    unreadable.report("reading what Redis has stored", raised)
    return raised


def _outcome(
    action: BucketCharge, verdict: int, value: bytes | None, now: float, birth: int, after: StatesByBucket
) -> Outcome | Decision:
    """The outcome of a charge; its new state is added to ``after``."""
    (quota, cost, _, _), bucket = action
    stamp, last, generation, level = quota.stamp, now, float(birth), 0.0
    if value is not None and len(value) == PLAIN_SIZE:
        stamp, last, generation, level = unpack_plain(value)
    elif value is not None:
        stamp = b""
    left = None
    if isinstance(quota, TokenBucket) and quota.is_simple and stamp == quota.stamp and last <= now:
        left = admit(quota, level, now - last, cost)
    if left is None or verdict != _YES:
        return _general_outcome(action, verdict, value, now, birth, after)
    after[bucket] = (quota, (left, now, int(generation), (), (), b""))
    return level, last, generation, now, left, birth


def _general_outcome(
    action: BucketCharge, verdict: int, value: bytes | None, now: float, birth: int, after: StatesByBucket
) -> Outcome | Decision:
    """``_outcome`` for quotas and states of any kind, and for refusals."""
    charge, quota, stored = action[0].charge(action[1]), action[0].quota, unpack(action[0].quota, value)
    state = current(quota, stored, now, birth)
    taken = left, _, _ = ALGORITHMS[type(quota)].take(quota, state, now, charge.cost, 0.0)
    if (left is not None) != (verdict == _YES):
        decision, _ = decide(Take((charge,)), [state], now)
        return _as_decided(decision, verdict == _YES)
    if left is not None or stored is not None:
        after[charge.bucket] = (quota, state if left is None else left)
    return taken, state, now, birth


def _answer(
    action: Action, verdict: int, values: Sequence[bytes | None], now: float, birth: int, after: StatesByBucket
) -> Answer:
    """The answer to an action, from its values; the states that it leaves are added to ``after``.

    The first of the values are those of the keys of its operation; ``birth`` is that of the first of all.
    """
    count = operation_keys(action)
    record, birth = values[0] if count else None, birth + count
    if isinstance(action, Settlement):
        return verdict == _YES
    if isinstance(action, Reset):
        return None
    if verdict == _AGAIN:
        return _answered_again(action, record)
    charges = charges_of(action)
    states = [unpack(charge.quota, value) for charge, value in zip(charges, values[count:])]
    match action:
        case Take():
            return _decision(action, verdict == _YES, states, now, birth, after)
        case Redemption():
            return redeemed(foresee(action.take, states, now), verdict == _YES)
        case Repayment():
            return _booked(action, states, now, birth)
        case Peek():
            return foresee(action.take, states, now)
    raise TypeError(f"{action!r} is no action")


def _decision(
    take: Take, allowed: bool, states: list[State | None], now: float, birth: int, after: StatesByBucket
) -> Decision:
    decision, written = decide(take, states, now, birth)
    if decision.allowed != allowed:
        return _as_decided(decision, allowed)
    for charge, state, found in zip(take.charges, written, states):
        left = found if state is None else state
        if left is not None:
            after[charge.bucket] = (charge.quota, left)
    return decision


def _answered_again(action: Action, record: bytes | None) -> Answer:
    """The answer to a take or a repayment whose operation was carried out before, from the record of that.

    It may have been that of the other kind: then its birth says so, which is below 0 for a repayment.
    """
    if record is None:
        raise struct.error
    take = action if isinstance(action, Take) else Take(tuple(charges_of(action)))
    _, _, now, birth = _RECORD.unpack_from(record)
    at, states = _RECORD.size, []
    for charge in take.charges:
        (length,) = _LENGTH.unpack_from(record, at)
        at += _LENGTH.size + length
        states.append(unpack(charge.quota, record[at - length : at] or None))
    if isinstance(action, Repayment) and birth < 0:
        return _booked(action, states, now, int(-birth))
    decision = as_allowed(foresee(take, states, now)) if birth < 0 else decided_again(take, states, now, int(birth))
    if isinstance(action, Repayment):
        settlement = settlement_of(decision, [charge.cost for charge in take.charges])
        return [] if settlement is None else list(settlement.settled_charges)
    return decision


def _booked(repayment: Repayment, states: list[State | None], now: float, birth: int) -> list[SettledCharge]:
    """Where the units of a repayment are, each charge with as many as were debited."""
    written = settle(Settlement(0.0, repayment.settled_charges), states, now, birth)
    pairs = zip(repayment.settled_charges, written)
    return [_debited(settled, state, now) for settled, state in pairs if state is not None]


def _debited(settled: SettledCharge, state: State, now: float) -> SettledCharge:
    """The last units of a bucket in this state, which were debited now, at the last slot that they are booked for."""
    quota, units = settled.charge.quota, settled.actual - settled.charge.cost
    if isinstance(quota, TokenBucket):
        slot_us = max(state[1], now) + max(math.ceil((state[0] - quota.burst_level) / quota.limit), 0)
        place = max(state[0] - units * quota.period_us, 0.0)
    else:
        length = quota.period_us if isinstance(quota, FixedWindow) else quota.part_us * (quota.buckets + 1)
        slot_us = now + reset_us(quota, state, now) - length
        place = float(round(slot_us / (quota.period_us if isinstance(quota, FixedWindow) else quota.part_us)))
    charge = replace(settled.charge, cost=units)
    return SettledCharge(charge, state[1], state[2], place, float(slot_us), units)


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
            if verdicts is not None and math.isfinite(float(now)):
                return float(now), verdicts, values
        except (TypeError, ValueError):  # no time at all
            pass
    raise _nonsense(reply)


def _nonsense(reply: object) -> StoreError:
    return StoreError(f"the script's reply has the wrong shape: {reply!r:.200}")
