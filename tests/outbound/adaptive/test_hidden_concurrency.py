"""A server that slows down under too many requests at once: the transport finds how many it bears, by its latency."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asgi_ratelimit import AdaptiveTransport, MemoryStore
from asgi_ratelimit.outbound.adaptive.hidden import Outcome, hidden_buckets
from asgi_ratelimit.profiles import gradient
from asgi_ratelimit.testing import SteppedClock

SERVICE_S = 1.0


class Workers:
    """A server with so many workers: each takes about a second for a request, and the others wait, or are refused."""

    def __init__(self, workers: int, places: int = 1000) -> None:
        self.free, self.places = asyncio.Semaphore(workers), places
        self.random = random.Random(3)
        self.now = self.most = self.served = self.refused = 0

    async def handle_async_request(self, request: Any) -> httpx.Response:
        """Answer."""
        if self.now >= self.places:
            self.refused += 1
            return httpx.Response(429, request=request)
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            async with self.free:
                await asyncio.sleep(SERVICE_S * self.random.uniform(0.8, 1.2))
        finally:
            self.now -= 1
        self.served += 1
        return httpx.Response(200, request=request)

    async def aclose(self) -> None: ...

    async def __aenter__(self) -> None: ...


@pytest.mark.parametrize(("start", "places", "most"), [(1, 1000, 15), (30, 1000, 20), (1, 8, 8)])
def test_as_many_as_a_server_bears(start: int, places: int, most: int) -> None:
    """90 % of its throughput, with about twice as many under way as it has workers; few of them are refused."""
    clock, workers = SteppedClock(), Workers(5, places)
    profile = gradient(1, 100, start=start)
    transport = AdaptiveTransport(workers, store=MemoryStore(clock=clock), profile=profile, retries=0)

    async def main() -> None:
        async with httpx.AsyncClient(transport=transport, base_url="http://api.example", timeout=None) as client:

            async def work(end: float) -> None:
                while clock.now < end:
                    await client.get("/a")

            half = clock.now + 200
            await asyncio.gather(*[work(half) for _ in range(30)])
            workers.served = workers.most = workers.refused = 0
            await asyncio.gather(*[work(half + 60) for _ in range(30)])

    clock.run(main())
    assert workers.served >= 0.9 * 5 * 60
    assert workers.most <= most
    assert workers.refused <= 0.05 * workers.served


steps = st.lists(
    st.tuples(st.floats(0, 5), st.sampled_from(["send", "serve"] * 20 + ["refuse", "die", "overload"])),
    min_size=60,
    max_size=120,
)


@given(st.integers(1, 5), st.integers(0, 5), st.floats(0, 1), steps)
def test_the_number_never_leaves_its_bounds(
    floor: int, more: int, start: float, steps: list[tuple[float, str]]
) -> None:
    """Whatever comes of requests, and however late: no more are under way than the ceiling, and the floor may be."""
    (bucket,) = hidden_buckets(gradient(floor, floor + more, start=floor + round(more * start)))
    now, sent = 0.0, list[int]()
    for seconds, step in steps:
        now += seconds * 1e6
        if step == "send":
            may_go = bucket.ready_at(now) <= now
            assert may_go or len(sent) >= floor
            if may_go:
                bucket.admit(now)
                sent.append(bucket.send(now))
        elif sent:
            number = sent.pop(0)
            if step != "die":
                bucket.judge(
                    number, Outcome(503 if step == "overload" else 200, step == "refuse", step == "refuse"), now
                )
            bucket.end(number, now)
        assert len(sent) <= floor + more
        assert floor <= bucket.limit <= floor + more
