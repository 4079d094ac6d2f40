"""``PaceTimeout``: an error that carries the refusing decision, also between processes."""

from __future__ import annotations

import pickle

import pytest

from asgi_ratelimit import Limiter, MemoryStore, PaceTimeout, RateLimitError, TokenBucket
from asgi_ratelimit.testing import SteppedClock

pytestmark = pytest.mark.anyio


async def test_it_carries_the_decision_and_survives_pickling(clock: SteppedClock) -> None:
    """A task queue that sends the error to another process keeps its text and its decision."""
    limiter = Limiter(TokenBucket(1, burst=1), store=MemoryStore(clock=clock))
    await limiter.pace("key")
    with pytest.raises(PaceTimeout) as raised:
        async with limiter.spend("key", 1, max_delay=0.25):
            pass
    restored = pickle.loads(pickle.dumps(raised.value))
    assert isinstance(restored, (TimeoutError, RateLimitError))
    assert str(restored) == str(raised.value) == "the next slot for 'key' is 1 s away, max_delay is 0.25 s"
    assert restored.decision == raised.value.decision
    assert restored.decision.retry_after == 0.75
