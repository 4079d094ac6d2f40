"""Decide what one request takes from all its buckets at once.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle, repeat

from ..decision import Charge, Decision, QuotaState, Take
from ..quotas import SECOND_US, Quota
from .quota_kinds import ALGORITHMS, States, current, is_queue, looks
from .state import NEVER, Outlook, State, Taken

UNKNOWN: Outlook = (0.0, 0.0, 0.0)
"""Stands for an outlook that has not been worked out."""

MAX_LOOKS = 600
"""How often several charges look for a slot that suits all before they go to the end of all queues."""


def decide(take: Take, states: States, now: float, birth: int = 0) -> tuple[Decision, list[State | None]]:
    """The decision of a take over the states of its charges, and their new states: ``None`` for each not written.

    Each charge is evaluated first, and the longest wait decides: if it is within the take's ``max_wait``, all charges
    book at that moment; otherwise none does. A condition, whose cost is 0, counts for the wait, and writes nothing. A
    refusal writes nothing, with one exception: a state that a clock set back by more than a period had left in the
    future is moved back once, so that it does not lock its key out. A state that is made here for charge number i is of
    the generation ``birth + i``.
    """
    if take.best_effort:
        take_now = _with_cost(take, _partial_cost(take, states, now))
        decision, written = decide(take_now, states, now, birth)
        return replace(decision, take=take), written
    before: list[State] = []
    taken: list[Taken] = []
    max_wait_us, wait_us, may_settle = take.max_wait_us, 0.0, take.may_settle
    is_joint = len(take.charges) > 1 and max_wait_us > 0.0
    for charge, stored in zip(take.charges, states):
        quota = charge.quota
        state = stored if stored is not None and stored[1] <= now else current(quota, stored, now, birth + len(before))
        if not is_joint:
            each = ALGORITHMS[type(quota)].take(quota, state, now, charge.cost, max_wait_us, 0.0, may_settle)
        else:
            each = None, ALGORITHMS[type(quota)].wait(quota, state, now, charge.cost), UNKNOWN
        before.append(state)
        taken.append(each)
        if each[1] > wait_us:
            wait_us = each[1]
    if len(taken) > 1 and (is_joint or wait_us > 0.0) and wait_us < NEVER:
        wait_us, taken = _agreed(take, before, taken, wait_us, now)
    if wait_us > max_wait_us or wait_us == NEVER:
        return _refusal(take, before, taken, wait_us, now), list(map(_rebased, states, before))
    if len(taken) == 1:
        written = [taken[0][0] if charge.cost else None]
    else:
        written = [each[0] if charge.cost else None for charge, each in zip(take.charges, taken)]
    return _grant(take, before, taken, wait_us, now, birth), written


def decide_taken(take: Take, before: list[State], taken: list[Taken], now: float, birth: int) -> Decision:
    """The decision of a take of one charge without a wait, from what the charge took."""
    if taken[0][0] is None:
        return _refusal(take, before, taken, taken[0][1], now)
    return _grant(take, before, taken, taken[0][1], now, birth)


def foresee(take: Take, states: States, now: float) -> Decision:
    """The decision that ``decide`` would return for these states; nothing is taken, and nothing is written."""
    decision, _ = decide(take, states, now)
    if not decision.allowed or decision.before is None:
        return decision
    unchanged = undone(decision).states
    least = min(unchanged, key=_remaining)
    return replace(
        decision, remaining=least.remaining, reset_after=least.reset_after, quota=least.quota, states=unchanged
    )


def _agreed(
    take: Take, before: Sequence[State], taken: list[Taken], wait_us: float, now: float
) -> tuple[float, list[Taken]]:
    """The least wait, at least ``wait_us``, that suits all charges, and what each of them takes then."""
    quotas = [charge.quota for charge in take.charges]
    if wait_us and not all(map(is_queue, quotas, before, repeat(now))):
        wait_us = _common_wait(take, before, wait_us, now)
    if wait_us > take.max_wait_us or wait_us == NEVER:
        return wait_us, taken
    agreed = [
        ALGORITHMS[type(charge.quota)].take(charge.quota, state, now, charge.cost, NEVER, wait_us, take.may_settle)
        for charge, state in zip(take.charges, before)
    ]
    if wait_us > 0.0 and any(each[1] == NEVER for each in agreed):  # too late for a window to have a place for it
        return NEVER, taken
    return wait_us, agreed


def _common_wait(take: Take, before: Sequence[State], wait_us: float, now: float) -> float:
    """The least wait, at least ``wait_us``, at which all charges conform.

    Room before the end of a queue is free only for a while: a wait that suits one charge may be too late for another.
    So each charge in turn looks for its first wait from there on, until all agree. After ``MAX_LOOKS`` looks, they go
    to the ends of all queues instead.
    """
    charges, looked, agreeing = list(zip(take.charges, before)), 0, 0
    for charge, state in cycle(charges):
        own_us = ALGORITHMS[type(charge.quota)].wait(charge.quota, state, now, charge.cost, wait_us)
        agreeing = agreeing + 1 if own_us == wait_us else 1
        wait_us, looked = own_us, looked + looks(charge.quota, state)
        if agreeing == len(charges) or wait_us == NEVER:
            return wait_us
        if looked >= MAX_LOOKS:
            break
    at_ends = []
    for charge, state in charges:
        algorithm, quota = ALGORITHMS[type(charge.quota)], charge.quota
        at_ends.append(algorithm.wait(quota, algorithm.at_end(quota, state), now, charge.cost, wait_us))
    return max(at_ends)


def _partial_cost(take: Take, states: States, now: float) -> float:
    """The most whole units that all charges can give now: at least 1, and at most the cost."""
    cost = take.charges[0].cost
    most = [_most_at_once(charge, state, now) for charge, state in zip(take.charges, states)]
    return max(min(cost, *most), min(cost, 1.0))


def _most_at_once(charge: Charge, stored: State | None, now: float) -> int:
    quota = charge.quota
    return int(ALGORITHMS[type(quota)].most_at_once(quota, current(quota, stored, now), now))


def _with_cost(take: Take, cost: float) -> Take:
    return Take(
        tuple([replace(charge, cost=cost) for charge in take.charges]),
        on_error=take.on_error,
        may_settle=take.may_settle,
    )


def _rebased(stored: State | None, state: State) -> State | None:
    """The state, if it had to be moved back from the future."""
    return state if stored is not None and stored is not state else None


def _grant(take: Take, before: list[State], taken: list[Taken], wait_us: float, now: float, birth: int = 0) -> Decision:
    states = []
    for charge, (_, _, (units, more_us, reset_us)) in zip(take.charges, taken):
        states.append(  # a comprehension is a call of its own in Python 3.11
            QuotaState(charge.quota, True, int(units), 0.0, reset_us / SECOND_US, more_us / SECOND_US)
        )
    least = states[0] if len(states) == 1 else min(states, key=_remaining)
    return Decision(
        True,
        take.charges[0].cost,
        wait_us / SECOND_US,
        0.0,
        least.remaining,
        least.reset_after,
        (now + wait_us) / SECOND_US,
        least.quota,
        tuple(states),
        False,
        False,
        take,
        before,
        now,
        birth=birth,
    )


def _refusal(take: Take, before: list[State], taken: list[Taken], wait_us: float, now: float) -> Decision:
    max_wait_us = take.max_wait_us
    all_states = []
    for charge, state, (after, own_us, outlook) in zip(take.charges, before, taken):
        if after is not None or outlook is UNKNOWN:
            outlook = _outlook(charge.quota, state, now)  # noqa: PLW2901  # as it is, because nothing was taken
        all_states.append(_quota_state(charge.quota, _excess(own_us, max_wait_us), outlook))
    states = tuple(all_states)
    worst = states[0] if len(states) == 1 else max(states, key=_retry_after)
    retry_after = _excess(wait_us, max_wait_us) / SECOND_US
    left, reset, ready_at = worst.remaining, worst.reset_after, now / SECOND_US + retry_after
    return Decision(
        False, 0, 0.0, retry_after, left, reset, ready_at, worst.quota, states, False, False, take, before, now
    )


def _excess(wait_us: float, max_wait_us: float) -> float:
    """How much longer a wait is than allowed."""
    if wait_us == NEVER:
        return wait_us
    return wait_us - max_wait_us if wait_us > max_wait_us else 0.0


def _remaining(state: QuotaState) -> int:
    return state.remaining


def _retry_after(state: QuotaState) -> float:
    return state.retry_after


def undone(decision: Decision) -> Decision:
    """The decision with the quota states as if it had taken nothing; unchanged if these are not known."""
    if decision.take is None or decision.before is None:
        return decision
    times = decision.times_us or repeat(decision.now_us)
    charges = zip(decision.take.charges, decision.before, times)
    states = [_quota_state(charge.quota, 0.0, _outlook(charge.quota, state, now)) for charge, state, now in charges]
    return replace(decision, states=tuple(states))


def _outlook(quota: Quota, state: State, now: float) -> Outlook:
    return ALGORITHMS[type(quota)].outlook(quota, state, now)


def _quota_state(quota: Quota, retry_us: float, outlook: Outlook) -> QuotaState:
    units, more_us, reset_us = outlook
    return QuotaState(
        quota, retry_us == 0.0, int(units), retry_us / SECOND_US, reset_us / SECOND_US, more_us / SECOND_US
    )
