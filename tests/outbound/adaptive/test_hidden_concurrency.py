"""A server that slows down under too many requests at once: the transport finds how many it bears, by its latency."""

from __future__ import annotations

import asyncio
import heapq
import random
from collections.abc import Iterator
from itertools import count
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asgi_ratelimit import AdaptiveTransport, ConfigurationError, MemoryStore
from asgi_ratelimit.outbound.adaptive.hidden import Outcome, hidden_buckets
from asgi_ratelimit.profiles import gradient
from asgi_ratelimit.testing import SteppedClock

SERVICE_S = 1.0


class Workers:
    """A server with so many workers: each takes about a second for a request, and the others wait."""

    def __init__(self, workers: int) -> None:
        self.free = asyncio.Semaphore(workers)
        self.random = random.Random(3)
        self.now, self.most, self.served = 0, 0, 0

    async def handle_async_request(self, request: Any) -> httpx.Response:
        """Answer."""
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


def run(workers: Workers, seconds: float, callers: int, **options: Any) -> tuple[float, int]:
    """Keep a server busy; returns the requests that it served a second, and the most at once in the second half."""
    clock = SteppedClock()
    transport = AdaptiveTransport(workers, store=MemoryStore(clock=clock), **options)

    async def main() -> tuple[float, int]:
        async with httpx.AsyncClient(transport=transport, base_url="http://api.example", timeout=None) as client:

            async def work(end: float) -> None:
                while clock.now < end:
                    await client.get("/a")

            half = clock.now + seconds / 2
            await asyncio.gather(*[work(half) for _ in range(callers)])
            workers.served = workers.most = 0
            await asyncio.gather(*[work(half + seconds / 2) for _ in range(callers)])
        return workers.served / (seconds / 2), workers.most

    return clock.run(main())


def test_as_many_as_a_server_bears() -> None:
    """At least 90 % of its throughput, with about twice as many under way as it has workers."""
    served, most = run(Workers(5), 200.0, 30, profile=gradient(1, 100))
    assert served >= 0.9 * 5 / SERVICE_S
    assert most <= 15


def search(start: int, events: int, workers: int = 10, places: int | None = None) -> Iterator[tuple[int, int]]:
    """Keep a server busy through a bucket alone; yields the requests that were refused, and the limit, as they end.

    Its workers take a second for a request until a third of the events is over, and three seconds from then on.
    """
    (bucket,) = hidden_buckets(gradient(1, 100, start=start))
    now, order, refused, chance = 0.0, count(), 0, random.Random(3)
    under_way: list[tuple[float, int, int, bool]] = []
    free = [0.0] * workers
    for event in range(events):
        while bucket.ready_at(now) <= now:
            bucket.admit(now)
            is_refused = places is not None and len(under_way) >= places
            end = now + 1e4
            if not is_refused:
                seconds = chance.uniform(0.8, 1.2) * (1.0 if event < events / 3 else 3.0)
                end = max(free[0], now) + seconds * 1e6
                heapq.heapreplace(free, end)
            heapq.heappush(under_way, (end, next(order), bucket.send(now), is_refused))
        now, _, number, is_refused = heapq.heappop(under_way)
        refused += is_refused
        bucket.judge(number, Outcome(429 if is_refused else 200, is_refused, is_refused), now)
        bucket.end(number, now)
        yield refused, int(bucket.limit)


@pytest.mark.parametrize("start", [1, 10, 100])
def test_the_number_is_found_from_anywhere(start: int) -> None:
    """Between the number of workers and three times that, whether it begins below or above; also when all is slower."""
    limits = [limit for _, limit in search(start, 12_000)]
    for part in (limits[3_000:4_000], limits[8_000:]):
        assert 10 <= sorted(part)[len(part) // 2] <= 30


def test_refusals_lower_the_number() -> None:
    """A server that refuses what is too much: it stays near what is served, and few are refused."""
    ends = list(search(1, 9_000, places=10))
    assert 7 <= sorted(limit for _, limit in ends)[4_500] <= 12
    assert ends[-1][0] <= 0.05 * len(ends)


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


@pytest.mark.parametrize(("floor", "ceiling"), [(0, 5), (5, 2), (1, float("nan"))])
def test_wrong_bounds_are_refused(floor: int, ceiling: int) -> None:
    """With an example."""
    with pytest.raises(ConfigurationError, match=r"gradient\(2, 100\)"):
        gradient(floor, ceiling)
