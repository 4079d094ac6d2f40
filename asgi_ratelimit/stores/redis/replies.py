"""Turns the script's verdicts and values into answers, for actions of any kind except single charges."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

from ...algorithms import ALGORITHMS, State, decide, foresee, pack, settle, settlement_of, unpack
from ...decision import Decision, Redemption, SettledCharge, Settlement, Take
from ...quotas import SECOND_US, TokenBucket
from ..operations import as_allowed, decided_again, redeemed
from .operation_records import OperationRecord, read_record
from .script_actions import Action, Answer, Peek, Repaid, Repayment, Reset, charges_of, operation_keys

Values: TypeAlias = dict[str, bytes]
"""The current values of buckets, packed as they are in Redis."""

logger = logging.getLogger("asgi_ratelimit")

YES, AGAIN = ord("1"), ord("2")
"""Verdicts: allowed or done; answered again, because it was carried out before."""


class Disagreements:
    """How often the script and Python decided differently over the same states. The script's verdict stands."""

    count = 0


def answer_to(
    action: Action, verdict: int, values: Sequence[bytes | None], now: float, birth: int, after: Values
) -> Answer:
    """The answer to an action, from its values; the values that it leaves are added to ``after``.

    The first values are those of the keys of its operation; ``birth`` is the birth of the first value of all.
    """
    count = operation_keys(action)
    record, birth = values[0] if count else None, birth + count
    if isinstance(action, Settlement):
        return verdict == YES
    if isinstance(action, Reset):
        return None
    if verdict == AGAIN:
        return _answered_again(action, record, now)
    charges = charges_of(action)
    states = [unpack(charge.quota, value, len(charges)) for charge, value in zip(charges, values[count:])]
    match action:
        case Take():
            return _decision(action, verdict == YES, states, now, birth, after)
        case Redemption():
            return redeemed(foresee(action.take, states, now), verdict == YES)
        case Repayment():
            return _booked(action.settled_charges, states, now, birth)
        case Peek():
            return foresee(action.take, states, now)
    raise TypeError(f"{action!r} is not an action")


def _decision(take: Take, allowed: bool, states: list[State | None], now: float, birth: int, after: Values) -> Decision:
    decision, written = decide(take, states, now, birth)
    if decision.allowed != allowed:
        return as_decided(decision, allowed)
    for charge, state, before in zip(take.charges, written, states):
        left = before if state is None else state
        if left is not None:
            after[charge.bucket] = pack(charge.quota, left)
    return decision


def _answered_again(action: Action, packed: bytes | None, now: float) -> Answer:
    """The answer to a take or a repayment whose operation was carried out before, as either of them."""
    take = action if isinstance(action, Take) else Take(tuple(charges_of(action)))
    record = read_record(packed, take)
    if isinstance(action, Repayment) and record.is_debit:
        debits = action.settled_charges if record.debits is None else record.debits
        return _booked(debits, record.states, record.then, record.birth)
    decision = decided_again(record.take, record.states, record.then, record.birth, now)
    if record.is_debit:
        return _as_debited(decision, record)
    if isinstance(action, Repayment):
        settlement = settlement_of(decision, [charge.cost for charge in record.take.charges])
        return Repaid(float(record.birth)) if settlement is None else Repaid(settlement.id, settlement.settled_charges)
    return decision


def _as_debited(decision: Decision, record: OperationRecord) -> Decision:
    """The decision of a take that was charged as a repayment: it was allowed, and is settled where that is."""
    decision = replace(as_allowed(decision), ready_at=record.then / SECOND_US, birth=record.birth)
    if record.debits is None:
        return decision
    booked = _booked(record.debits, record.states, record.then, record.birth).settled_charges
    granted = record.debits[0].charge.cost if record.take.best_effort else decision.granted
    return replace(decision, granted=granted, booked=tuple(booked))


def _booked(debits: Sequence[SettledCharge], states: list[State | None], now: float, birth: int) -> Repaid:
    """Where the units of a repayment are, each charge with as many as were debited."""
    written = settle(Settlement(0.0, tuple(debits)), states, now, birth)
    pairs = zip(debits, written)
    return Repaid(float(birth), [_debited(settled, state, now) for settled, state in pairs if state is not None])


def _debited(settled: SettledCharge, state: State, now: float) -> SettledCharge:
    """The last units of a bucket in this state, which were debited now, at the last slot that they are booked for.

    In a window, they are where a charge made now would be.
    """
    quota, units = settled.charge.quota, settled.actual - settled.charge.cost
    charge = replace(settled.charge, cost=units)
    if isinstance(quota, TokenBucket):
        slot_us = max(state[1], now) + max(math.ceil((state[0] - quota.burst_level) / quota.limit), 0)
        place = max(state[0] - units * quota.period_us, 0.0)
        if quota.slow_rate != quota.limit:
            slot_us += 0.5  # the place is where it starts in the queue, as that of a charge in a gap is
    else:
        place, slot_us = ALGORITHMS[type(quota)].place(quota, state, max(state[1], now), units, 0.0)
    return SettledCharge(charge, state[1], state[2], place, float(slot_us), units)


def as_decided(decision: Decision, allowed: bool) -> Decision:
    """A decision with the verdict of the script, which decided what was written."""
    Disagreements.count += 1
    logger.error("the script allowed=%s where %r was expected; the script's verdict stands", allowed, decision)
    take = decision.take
    if allowed and take is not None:
        return replace(decision, allowed=True, granted=take.charges[0].cost, retry_after=0.0, before=None)
    return replace(decision, allowed=False, granted=0, delay=0.0, retry_after=1e-6, before=None)
