"""Turns the script's verdicts and values into answers, for actions of any kind except single charges."""

from __future__ import annotations

import logging
import math
import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

from ...algorithms import ALGORITHMS, State, decide, foresee, pack, settle, settlement_of, unpack
from ...decision import Decision, Redemption, SettledCharge, Settlement, Take
from ...quotas import SECOND_US, TokenBucket
from ..operations import as_allowed, decided_again, of_quotas, redeemed
from .packed_quotas import SIZE, quota_in
from .script_actions import Action, Answer, Peek, Repaid, Repayment, Reset, charges_of, operation_keys

Values: TypeAlias = dict[str, bytes]
"""The current values of buckets, packed as they are in Redis."""

logger = logging.getLogger("asgi_ratelimit")

YES, AGAIN = ord("1"), ord("2")
"""Verdicts: allowed or done; answered again, because it was carried out before."""

_RECORD = struct.Struct("<dddd")
_LENGTH = struct.Struct("<I")


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
            return _booked(action, states, now, birth)
        case Peek():
            return foresee(action.take, states, now)
    raise TypeError(f"{action!r} is not an action")


def _decision(take: Take, allowed: bool, states: list[State | None], now: float, birth: int, after: Values) -> Decision:
    decision, written = decide(take, states, now, birth)
    if decision.allowed != allowed:
        return as_decided(decision, allowed)
    for charge, state, found in zip(take.charges, written, states):
        left = found if state is None else state
        if left is not None:
            after[charge.bucket] = pack(charge.quota, left)
    return decision


def _answered_again(action: Action, record: bytes | None, now: float) -> Answer:
    """The answer to a take or a repayment whose operation was carried out before, from its record.

    The earlier action may have been of the other kind. Its birth shows that: it is below 0 for a repayment.
    """
    if record is None:
        raise struct.error
    take = action if isinstance(action, Take) else Take(tuple(charges_of(action)))
    _, _, then, birth = _RECORD.unpack_from(record)
    at, values = _RECORD.size, []
    for _ in take.charges:
        (length,) = _LENGTH.unpack_from(record, at)
        at += _LENGTH.size + length
        values.append(record[at - length : at] or None)
    if len(record) - at == SIZE * len(take.charges):  # a debit has no quotas, and an older version wrote other quotas
        starts = range(at, len(record), SIZE)
        quotas = [quota_in(record[start : start + SIZE], each.quota) for start, each in zip(starts, take.charges)]
        take = of_quotas(take, quotas)
    states = [unpack(charge.quota, value, len(values)) for charge, value in zip(take.charges, values)]
    if isinstance(action, Repayment) and birth < 0:
        return _booked(action, states, then, int(-birth))
    decision = decided_again(take, states, then, int(abs(birth)), now)
    if birth < 0:
        decision = replace(as_allowed(decision), ready_at=then / SECOND_US)
    if isinstance(action, Repayment):
        settlement = settlement_of(decision, [charge.cost for charge in take.charges])
        return Repaid(birth) if settlement is None else Repaid(settlement.id, settlement.settled_charges)
    return decision


def _booked(repayment: Repayment, states: list[State | None], now: float, birth: int) -> Repaid:
    """Where the units of a repayment are; each charge has as many as were debited."""
    written = settle(Settlement(0.0, repayment.settled_charges), states, now, birth)
    pairs = zip(repayment.settled_charges, written)
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
