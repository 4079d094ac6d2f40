"""``PaceTimeout``: an error that carries the refusing decision, also between processes."""

from __future__ import annotations

import pickle

import pytest

from asgi_ratelimit import Limiter, MemoryStore, PaceTimeout, RateLimitError, TokenBucket, pace
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
    assert str(restored) == str(raised.value) == "the next slot of 'default' for 'key' is 1 s away, max_delay is 0.25 s"
    assert restored.decision == raised.value.decision
    assert restored.decision.retry_after == 0.75


async def test_it_says_what_was_paced() -> None:
    """The name of the limiter, or of the function; the key too, unless all calls share one."""

    @pace("1/minute", max_delay=1.5)
    async def fetch() -> None: ...

    await fetch()
    with pytest.raises(PaceTimeout, match=rf"^the next slot of '{__name__}.*\.fetch' is [0-9.]+ s away"):
        await fetch()
    with pytest.raises(PaceTimeout, match=r"^no slot of 'mail' for 'alice', ever: the cost is above"):
        await Limiter("1/minute fixed", name="mail").acquire("alice", 2)
