"""What a request asks of all its buckets at once: decide, foresee."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from ..decision import Charge, Decision, QuotaState, Take, decided_at_once
from ..quotas import SECOND_US, FixedWindow, Quota, RollingWindow, TokenBucket
from . import fixed_window, rolling_window, token_bucket
from .kinds import ALGORITHMS, States, known
from .state import State

_TAKE_AT_ONCE: dict[type, Callable[..., tuple[State | None, int, float, float] | None]] = {
    TokenBucket: token_bucket.take_at_once,
    FixedWindow: fixed_window.take_at_once,
    RollingWindow: rolling_window.take_at_once,
}


def decide(take: Take, states: States, now: float) -> tuple[Decision, list[State | None]]:
    """The decision of a take over the states of its charges, and their new states, ``None`` where nothing is written.

    All charges are asked for their wait and the longest decides: within the take's ``max_wait`` all book at that
    moment, else none does. A refusal writes nothing, but for a state that a clock set back by more than a period had
    left in the future: it is brought back once, lest it lock its key out.
    """
    if take.only is not None:
        decision, left = decide_simple(take, take.only, states[0], now)
        return decision, [left]
    at_once = _decide_at_once(take, states, now)
    if at_once is not None:
        return at_once
    before = [known(charge.quota, state, now) for charge, state in zip(take.charges, states)]
    charges = _partial(take, before, now) if take.best_effort else take.charges
    waits, longest = _ask(take, charges, before, now)
    if longest > take.max_wait_us or longest == math.inf:
        return _refusal(take, before, waits, longest, now), list(map(_moved, states, before))
    after = [
        ALGORITHMS[type(charge.quota)].book(charge.quota, state, now, charge.cost, longest)
        for charge, state in zip(charges, before)
    ]
    return _grant(take, charges[0].cost, before, after, longest, now), [*after]


def decide_simple(take: Take, charge: Charge, stored: State | None, now: float) -> tuple[Decision, State | None]:
    """``decide`` for a take of one charge only, which nearly all are: without loops."""
    at_once = _at_once(charge, stored, now)
    if at_once is not None:
        found, left, told = at_once
        if left is not None:
            return decided_at_once(True, take, told, [found], now), left
        if not take.max_wait_us:
            return decided_at_once(False, take, told, [found], now), _moved(stored, found)
    return _decide_slowly(take, charge, stored, now)


def _at_once(charge: Charge, stored: State | None, now: float) -> tuple[State, State | None, tuple[QuotaState]] | None:
    """The state that a charge finds, the one that it leaves (``None`` where it does not fit in now), and what is told.

    ``None`` where it is not as simple as that. Of a bucket that was full the same is told each time, and that is kept
    with the charge once it is known.
    """
    quota, cost, told = charge.quota, charge.cost, charge.told_when_full
    if told is not None:  # it is a token bucket
        level, last, era, holes, ids = found = stored if stored is not None else token_bucket.fresh(now)
        if level <= (now - last) * quota.limit and not holes:
            return found, (cost * quota.period_us, now, era, holes, ids), told
    found = stored if stored is not None and stored[1] <= now else known(quota, stored, now)
    at_once = _TAKE_AT_ONCE[type(quota)](quota, found, now, cost)
    if at_once is None:
        return None
    left, units, more_us, reset_us = at_once
    more, reset = more_us / SECOND_US, reset_us / SECOND_US
    state = QuotaState(quota, left is not None, units, more if left is None else 0.0, reset, more)
    state.rendered = None  # to be found at once where headers are told
    told = (state,)
    if left is None:
        return found, None, told
    if left[0] == cost * quota.period_us:  # never so in a window
        charge.told_when_full = told
    return found, left, told


def _decide_slowly(take: Take, charge: Charge, stored: State | None, now: float) -> tuple[Decision, State | None]:
    quota = charge.quota
    found = known(quota, stored, now)
    algorithm = ALGORITHMS[type(quota)]
    if charge.cost > quota.most and not take.max_wait_us:
        wait_us = math.inf
    else:
        wait_us = algorithm.wait(quota, found, now, charge.cost)
    if wait_us > take.max_wait_us or wait_us == math.inf:
        return _refusal(take, [found], [wait_us], wait_us, now), _moved(stored, found)
    left = algorithm.book(quota, found, now, charge.cost, wait_us)
    return _grant(take, charge.cost, [found], [left], wait_us, now), left


def _decide_at_once(take: Take, states: States, now: float) -> tuple[Decision, list[State | None]] | None:
    """``decide`` where all charges fit in now; ``None`` where it is not as simple as that."""
    if take.best_effort or take.soonest_us:
        return None
    before: list[State] = []
    after: list[State | None] = []
    told: list[QuotaState] = []
    for charge, stored in zip(take.charges, states):
        at_once = _at_once(charge, stored, now)
        if at_once is None or at_once[1] is None:
            return None
        before.append(at_once[0])
        after.append(at_once[1])
        told.append(at_once[2][0])
    return decided_at_once(True, take, tuple(told), before, now), after


def foresee(take: Take, states: States, now: float) -> Decision:
    """What ``decide`` would say, over the states as they are: nothing is taken, and nothing written."""
    before = [known(charge.quota, state, now) for charge, state in zip(take.charges, states)]
    charges = _partial(take, before, now) if take.best_effort else take.charges
    waits, longest = _ask(take, charges, before, now)
    if longest > take.max_wait_us or longest == math.inf:
        return _refusal(take, before, waits, longest, now)
    return _grant(take, charges[0].cost, before, before, longest, now)


def _ask(take: Take, charges: Sequence[Charge], before: list[State], now: float) -> tuple[list[float], float]:
    """Each charge's own wait, and the least wait at which all of them conform."""
    waits, longest, holes = [], 0.0, False
    for charge, state in zip(charges, before):
        quota = charge.quota
        if charge.cost > quota.most and not take.max_wait_us:
            own = math.inf  # when pacing, a token bucket lets such a cost wait until it is empty
        else:
            own = ALGORITHMS[type(quota)].wait(quota, state, now, charge.cost)
        waits.append(own)
        if own > longest:
            longest = own
        if state[3]:
            holes = True
    if longest < math.inf and (take.soonest_us or (holes and len(waits) > 1)):
        longest = _agreed(charges, before, now, max(longest, take.soonest_us))
    return waits, longest


def _agreed(charges: Sequence[Charge], before: list[State], now: float, longest: float) -> float:
    """The least wait from ``longest`` on that suits all: a hole is open for a while only."""
    soonest = -1.0
    while soonest < longest:
        soonest = longest
        for charge, state in zip(charges, before):
            longest = ALGORITHMS[type(charge.quota)].wait(charge.quota, state, now, charge.cost, longest)
    return longest


def _partial(take: Take, before: list[State], now: float) -> tuple[Charge, ...]:
    """The charges at the most whole units that all can give, and at 1 where that is nothing."""
    cost = take.charges[0].cost
    least = min(cost, 1.0)
    granted = min([cost, *(_left(charge.quota, state, now) for charge, state in zip(take.charges, before))])
    while granted > least and _ask(take, _at(take.charges, granted), before, now)[1] > 0.0:
        granted -= 1.0
    return _at(take.charges, max(granted, least))


def _at(charges: Sequence[Charge], cost: float) -> tuple[Charge, ...]:
    return tuple([replace(charge, cost=cost) for charge in charges])


def _left(quota: Quota, state: State, now: float) -> int:
    return int(ALGORITHMS[type(quota)].left(quota, state, now))


def _moved(stored: State | None, state: State) -> State | None:
    """The state, if it had to be brought back from the future."""
    return state if stored is not None and stored is not state else None


def _grant(
    take: Take, granted: float, before: list[State], after: list[State], delay_us: float, now: float
) -> Decision:
    told = tuple([_quota_state(charge.quota, state, now, 0.0) for charge, state in zip(take.charges, after)])
    return _granted(take, granted, before, told, delay_us, now)


def _granted(
    take: Take, granted: float, before: list[State], told: tuple[QuotaState, ...], delay_us: float, now: float
) -> Decision:
    least = min(told, key=_remaining)
    return Decision(
        allowed=True,
        granted=granted,
        delay=delay_us / SECOND_US,
        retry_after=0.0,
        remaining=least.remaining,
        reset_after=least.reset_after,
        ready_at=(now + delay_us) / SECOND_US,
        quota=least.quota,
        states=told,
        take=take,
        before=before,
        now_us=now,
    )


def _refusal(take: Take, before: list[State], waits: list[float], longest: float, now: float) -> Decision:
    patience = take.max_wait_us
    told = tuple(
        [
            _quota_state(charge.quota, state, now, _past(own, patience))
            for charge, state, own in zip(take.charges, before, waits)
        ]
    )
    worst = told[0] if len(told) == 1 else max(told, key=_retry_after)
    retry_after = _past(longest, patience) / SECOND_US
    left, reset, ready_at = worst.remaining, worst.reset_after, now / SECOND_US + retry_after
    return Decision(
        False, 0, 0.0, retry_after, left, reset, ready_at, worst.quota, told, False, False, take, before, now
    )


def _past(wait_us: float, max_wait_us: float) -> float:
    """How much longer a wait is than allowed."""
    if wait_us == math.inf:
        return wait_us
    return wait_us - max_wait_us if wait_us > max_wait_us else 0.0


def _remaining(state: QuotaState) -> int:
    return state.remaining


def _retry_after(state: QuotaState) -> float:
    return state.retry_after


def _quota_state(quota: Quota, state: State, now: float, retry_us: float) -> QuotaState:
    left, more_us, reset = ALGORITHMS[type(quota)].outlook(quota, state, now)
    return QuotaState(quota, retry_us == 0.0, int(left), retry_us / SECOND_US, reset / SECOND_US, more_us / SECOND_US)
