"""How much of its limit a bucket serves that is kept busy by calls whose costs are known only when they end."""

from __future__ import annotations

import heapq

import pytest

from asgi_ratelimit import MemoryStore, SyncLimiter, TokenBucket
from asgi_ratelimit.testing import SteppedClock

LIMIT, PERIOD = 60_000, 60.0
WARM, MINUTES = 2, 4


def utilisation(estimate: float, actual: float, lasting: float) -> float:
    """The part of the limit that is really used, once the first burst is over.

    There is always one more call that wants to begin: when the bucket says so, or when another one has ended.
    """
    clock = SteppedClock()
    limiter = SyncLimiter(TokenBucket(LIMIT, PERIOD), store=MemoryStore(clock=clock))
    start, used, running = clock.now, 0.0, []
    while (now := clock.now - start) < (WARM + MINUTES) * PERIOD:
        while running and running[0][0] <= now:
            _, _, decision = heapq.heappop(running)
            limiter.settle(decision, actual)
            used += actual if now >= WARM * PERIOD else 0.0
        while decision := limiter.rate_limit("key", estimate):
            heapq.heappush(running, (now + lasting, decision.id, decision))
        clock.advance(min([decision.retry_after, *[max(end - now, 0.0) for end, _, _ in running[:1]]]) or 1e-6)
    return used / (LIMIT * MINUTES)


@pytest.mark.parametrize(
    ("estimate", "actual", "lasting", "least"), [(1500, 313, 10.0, 0.85), (2000, 1900, 10.0, 0.97)]
)
def test_a_bucket_that_is_kept_busy_serves_most_of_its_limit(
    estimate: float, actual: float, lasting: float, least: float
) -> None:
    """With a burst of its limit, and never more than its promise: a burst beyond the limit."""
    assert least <= utilisation(estimate, actual, lasting) <= 1.0 + 1.0 / MINUTES
