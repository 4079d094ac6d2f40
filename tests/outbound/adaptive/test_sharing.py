"""What transports that share a store share: declared quotas, and pauses."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import httpx
import pytest

from asgi_ratelimit import AdaptiveTransport, MemoryStore, RedisStore
from asgi_ratelimit.testing import SteppedClock
from tests.support.adaptive_clients import CHANNEL, HOST, Caller
from tests.support.redis_server import RedisServer
from tests.support.simulated_fleet import Server


def test_a_slot_of_the_quota_is_not_lost_to_a_pause() -> None:
    """A request whose slot comes during a pause goes at the end of the pause, and waits for no other slot."""
    clock, times = SteppedClock(), list[float]()
    store, start = MemoryStore(clock=clock), clock.now

    def answer(path: str) -> tuple[int, dict[str, str], Any]:
        times.append(clock.now - start)
        return (429, {"retry-after": "2"}, None) if path == "/refused" else (200, {}, None)

    slow, fast = Server(answer, (9.0, 9.0)), Server(answer, (0.0, 0.0))
    limited = AdaptiveTransport(fast, quota="1 per 10 seconds", store=store)
    other = AdaptiveTransport(slow, store=store, retries=0)

    async def main() -> None:
        async with httpx.AsyncClient(transport=limited) as one, httpx.AsyncClient(transport=other, timeout=None) as two:
            await one.get(f"{HOST}/")
            refused = asyncio.ensure_future(two.get(f"{HOST}/refused"))
            await one.get(f"{HOST}/")
            await refused

    clock.run(main())
    assert times == [0.0, 4.5, 11.0]


def test_a_request_that_leaves_late_moves_those_behind_it() -> None:
    """The event loop is blocked for a while: no interval has more requests than the declared quota admits."""

    def script(path: str, number: int) -> int:
        caller.clock.advance(0.15 if number == 2 else 0.0)
        return 200

    caller = Caller(script, profile="auto", quota="10/s", latency=0.0)
    caller.get(*["/"] * 6)
    times = caller.service.times
    assert all(later - earlier >= 0.0999 for earlier, later in pairwise(times))
    assert times[-1] > 0.5


@pytest.mark.anyio
@pytest.mark.parametrize(("on_error", "quota"), [("local", "1000/s"), ("allow", "1/minute")])
async def test_nothing_is_stuck_without_redis(server: RedisServer, on_error: Any, quota: str) -> None:
    """While it is gone, transports go on with what they know, or let all pass."""
    store = RedisStore(server.url, on_error=on_error)
    transport = AdaptiveTransport(httpx.MockTransport(lambda _: httpx.Response(200)), quota=quota, store=store)
    async with asyncio.timeout(60), httpx.AsyncClient(transport=transport) as client:
        assert (await client.get(HOST)).status_code == 200
        server.kill()
        answers = await asyncio.gather(*[client.get(HOST + CHANNEL) for _ in range(10)])
        assert {answer.status_code for answer in answers} == {200}
    await store.aclose()
