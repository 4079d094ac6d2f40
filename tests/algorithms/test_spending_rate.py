"""How much of a limit is used by calls that estimate more than they use, on a clock that is stepped."""

from __future__ import annotations

import heapq
import random
from itertools import count

import pytest

from asgi_ratelimit.algorithms import State, decide, settle, settlement_of
from asgi_ratelimit.decision import Charge, Decision, Take
from asgi_ratelimit.quotas import TokenBucket

SECOND = 1_000_000.0
START = 1_800_000_000 * SECOND
MINUTE = TokenBucket(60_000, 60)
ACTUAL = 313.0


def used_units(estimate: float, seconds: float, spread: float = 0.0) -> float:
    """The units that calls of about ten seconds use, first come, first served, woken by settlements."""
    chance, births = random.Random(1), count()
    take = Take((Charge(MINUTE, "key", estimate),), may_settle=True)
    now, state, used = START, None, 0.0
    under_way: list[tuple[float, int, Decision]] = []
    written: list[State | None]
    while now < START + seconds * SECOND:
        decision, written = decide(take, [state], now, next(births))
        if decision.allowed:
            duration = round(SECOND * 10 * (1 + spread * (chance.random() - 0.5)))
            heapq.heappush(under_way, (now + duration, next(births), decision))
            state, used = written[0], used + ACTUAL
            continue
        now += max(round(decision.retry_after * SECOND), 1)
        if under_way and under_way[0][0] <= now:
            now, _, done = heapq.heappop(under_way)
            settlement = settlement_of(done, [ACTUAL])
            assert settlement
            written = settle(settlement, [state], now)
            state = written[0] or state
    return used


@pytest.mark.parametrize(("estimate", "spread", "least"), [(1500, 0.0, 0.92), (1500, 1.0, 0.92), (400, 0.5, 0.97)])
def test_calls_that_estimate_too_much_use_their_limit(estimate: float, spread: float, least: float) -> None:
    """Beyond the burst, over ten minutes: nearly all that the limit gives, and never more."""
    share = (used_units(estimate, 600, spread) - MINUTE.burst) / (MINUTE.limit * 10)
    assert least <= share <= 1.0
