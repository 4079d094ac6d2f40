"""Processes that share a limit whose units come back one by one: each gets its part, for about one take a request."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import httpx
import pytest

from asgi_ratelimit import AdaptiveTransport, Decision, MemoryStore, PaceTimeout, Take
from asgi_ratelimit.testing import SteppedClock
from tests.stand_ins.discord_server import Sliding
from tests.stand_ins.reporting.answering import Window
from tests.support.adaptive_clients import bucket_headers
from tests.support.simulated_fleet import Server
from tests.support.store_elsewhere import StoreElsewhere

RATE = 40
CALLERS = 16
SECONDS = 10


class CountingStore(StoreElsewhere):
    """A view that counts the takes that it sends."""

    takes = 0

    async def take(self, takes: Sequence[Take]) -> list[Decision]:
        """Count takes, and send them."""
        self.takes += len(takes)
        return await super().take(takes)


class Api:
    """An API with 40 requests a second, or so, which reports when all of them are back, as OpenAI's does."""

    def __init__(self, clock: SteppedClock, limit: int = RATE, period: float = 1.0) -> None:
        self._clock, self._limit, self.requests = clock, limit, Sliding(limit, period)
        self.refused = 0

    def answer(self, _path: str) -> tuple[int, dict[str, str], Any]:
        """Serve a request, or refuse it."""
        is_served = not self.requests.wait(self._clock.now)
        self.refused += not is_served
        headers = {
            "x-ratelimit-limit-requests": str(self._limit),
            "x-ratelimit-remaining-requests": str(self.requests.left),
            "x-ratelimit-reset-requests": f"{(self.requests.end - self._clock.now) * 1000:.0f}ms",
        }
        return (200 if is_served else 429), headers, {}


class Processes:
    """Transports over one store, each as in a process of its own; ``latencies`` are those of their ways to it.

    Their API is the one above, or another one on the same clock.
    """

    def __init__(self, latencies: Sequence[float], api: Callable[[SteppedClock], Any] = Api, **options: Any) -> None:
        self.clock = SteppedClock()
        self.api = api(self.clock)
        store = MemoryStore(clock=self.clock)
        self.stores = [CountingStore(store, latency) for latency in latencies]
        self.clients = [self._client(each, seed, **options) for seed, each in enumerate(self.stores)]
        self.served: Counter[int] = Counter()
        # The longest wait of a request, in seconds.
        self.longest = 0.0

    def _client(self, store: CountingStore, seed: int, **options: Any) -> httpx.AsyncClient:
        server = Server(self.api.answer, (0.002, 0.004), seed)
        transport = AdaptiveTransport(server, **{"profile": "openai", "store": store, **options})
        return httpx.AsyncClient(transport=transport, base_url="http://api.example", timeout=None)

    async def call(self, number: int, channel: int = 1) -> None:
        """One request of one process."""
        response = await self.clients[number].get(f"/channels/{channel}/messages")
        self.served[number] += response.status_code == httpx.codes.OK
        self.longest = max(self.longest, response.extensions["pace"]["waited"])

    def run(self, seconds: float = SECONDS, channels: int = 1, callers: int = CALLERS) -> None:
        """In each process, callers keep the API busy for so long, each with requests to one of the channels."""
        end = self.clock.now + seconds

        async def work(number: int, channel: int) -> None:
            while self.clock.now < end:
                await self.call(number, channel)

        async def main() -> None:
            places = [(number, caller % channels) for number in range(len(self.clients)) for caller in range(callers)]
            await asyncio.gather(*[work(*place) for place in places])

        self.clock.run(main())


def test_a_process_far_from_the_store_gets_its_part() -> None:
    """Whoever is first at each unit does not get it every time: slots are booked, in the order of the takes."""
    processes = Processes([0.001, 0.001, 0.001, 0.008])
    processes.run()
    total = processes.served.total()
    assert total >= 0.95 * RATE * SECONDS
    assert processes.api.refused == 0
    assert processes.served[3] >= 0.7 * total / 4


def test_a_caller_that_is_cancelled_gives_its_slot_back() -> None:
    """The units that it has booked are there for others."""
    processes = Processes([0.001, 0.001])

    async def main() -> None:
        while processes.stores[0].takes < RATE * 2:  # until slots have to be booked ahead
            await asyncio.gather(*[processes.call(0) for _ in range(CALLERS)])
        for _ in range(200):
            waiting = [asyncio.ensure_future(processes.call(0)) for _ in range(CALLERS)]
            await asyncio.sleep(0.004)
            for each in waiting:
                each.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
        since, processes.served = processes.clock.now, Counter()
        while processes.clock.now < since + 2:
            await asyncio.gather(*[processes.call(1) for _ in range(CALLERS)])

    processes.clock.run(main())
    assert processes.served[1] >= 0.9 * 2 * RATE


def test_callers_in_a_hurry_are_served_from_the_first_second_on() -> None:
    """Answers that overtake others do not look like a window, which would stop everything until it has ended."""
    processes = Processes([0.001, 0.001], max_delay=0.2)

    async def main() -> list[Any]:
        outcomes = []
        for _ in range(10):
            callers = [processes.call(number) for number in (0, 1) for _ in range(RATE)]
            outcomes += await asyncio.gather(*callers, return_exceptions=True)
            await asyncio.sleep(0.3)
        return outcomes

    started = processes.clock.now
    outcomes = processes.clock.run(main())
    assert {type(each) for each in outcomes} == {type(None), PaceTimeout}
    assert processes.served.total() >= 0.95 * RATE * (processes.clock.now - started)
    assert processes.longest <= 0.2 + 0.002  # a take is under way when the time is over
    assert processes.api.refused == 0


class Unreported:
    """An API that admits 20 a second of all, and says so only by its refusals; its buckets seem to be never used."""

    def __init__(self, clock: SteppedClock) -> None:
        self._clock, self._window = clock, Window(20, 1.0)

    def answer(self, _path: str) -> tuple[int, dict[str, str], Any]:
        """Serve a request, or refuse it."""
        wait = self._window.wait(self._clock.now)
        if wait:
            body = {"retry_after": round(wait, 3), "global": True}
            return 429, {"retry-after": "1", "x-ratelimit-global": "true", "x-ratelimit-scope": "global"}, body
        return 200, bucket_headers(49, 1, limit=50), {}


@pytest.mark.parametrize("channels", [1, 5])
def test_equal_processes_get_equal_parts_of_what_is_never_reported(channels: int) -> None:
    """Although one refusal stops all, again and again, no process is left behind, and no channel that was held up."""
    processes = Processes([0.001, 0.001, 0.001, 0.008], Unreported, profile="discord")
    processes.run(20.0, channels)
    assert processes.served.total() >= 0.95 * 20 * 20
    assert min(processes.served.values()) >= 0.7 * max(processes.served.values())
    assert processes.longest <= 6.0


class Halved:
    """An API with 60 requests a minute, of which others use about a half; it says when the next unit is back."""

    def __init__(self, clock: SteppedClock) -> None:
        self._clock, self._units, self._at, self._random = clock, 60.0, clock.now, random.Random(1)

    def answer(self, _path: str) -> tuple[int, dict[str, str], Any]:
        """Serve a request, or refuse it."""
        passed, self._at = self._clock.now - self._at, self._clock.now
        self._units = min(self._units + passed - (self._random.random() < passed / 2), 60.0)
        is_served = self._units >= 1.0
        self._units -= is_served
        headers = {"ratelimit-policy": '"all";q=60;w=60', "ratelimit": f'"all";r={max(int(self._units), 0)};t=1'}
        return (200, headers, {}) if is_served else (429, {**headers, "retry-after": "1"}, {})


@pytest.mark.parametrize("processes", [2, 3])
def test_short_pauses_cost_no_process_its_turn(processes: int) -> None:
    """A slot that comes just before the end of a pause is used after it, and not given to those with later ones."""
    fleet = Processes([0.001] * processes, Halved, profile="auto")
    fleet.run(900.0)
    assert min(fleet.served.values()) >= 0.5 * max(fleet.served.values())


def test_many_routes_under_a_declared_quota() -> None:
    """They ask in turn, and not all of them for each slot: a request is one take, and its answer another one."""
    processes = Processes([0.001], Unreported, profile="discord", quota="18/s")

    async def main() -> None:
        await asyncio.gather(*[processes.clients[0].get(f"/channels/{number}/messages") for number in range(200)])

    processes.clock.run(main())
    assert processes.stores[0].takes <= 2.1 * 200


@pytest.mark.parametrize(("processes", "channels", "part"), [(3, 3, 0.6), (4, 1, 0.9)])
def test_a_reported_limit_below_a_declared_quota(processes: int, channels: int, part: float) -> None:
    """Its units go to all processes, and to all routes of each, in turn."""
    fleet = Processes([0.001] * processes, partial(Api, limit=60, period=20.0), quota="5/s")
    fleet.run(300.0, channels, callers=6)
    assert min(fleet.served.values()) >= part * max(fleet.served.values())
    assert fleet.longest <= 40.0


def test_others_have_used_up_a_bucket() -> None:
    """Only the requests that are under way when that shows are refused, and not as many as seemed to be left."""
    processes = Processes([0.001] * 2, partial(Api, limit=60, period=20.0), retries=0)
    processes.clock.run(processes.call(0))
    while not processes.api.requests.wait(processes.clock.now):
        pass
    processes.run(20.0)
    assert processes.api.refused <= 2 * CALLERS


class Partly(Api):
    """The same API behind a load balancer that may refuse a request by itself, and with channels without a limit."""

    refuses = 0

    def answer(self, path: str) -> tuple[int, dict[str, str], Any]:
        """Serve a request, or refuse it."""
        if self.refuses:
            self.refuses -= 1
            return 429, {"retry-after": "1"}, {}
        return (200, {}, {}) if path.startswith("/free") else super().answer(path)


def test_a_refusal_that_is_not_about_a_bucket_leaves_it_as_it_is() -> None:
    """Also where the last answer that the process had of the bucket said that nothing was left."""
    processes = Processes([0.001] * 2, partial(Partly, limit=60, period=60.0), retries=0)

    async def main() -> None:
        await processes.call(0)
        await processes.call(1)
        while processes.api.requests.left > 1:
            processes.api.requests.wait(processes.clock.now)
        await processes.call(0)
        await asyncio.sleep(61)
        await processes.call(1)
        processes.api.refuses = 1
        await processes.call(0)
        await asyncio.gather(*[processes.call(number % 2) for number in range(40)])

    processes.clock.run(main())
    assert processes.longest <= 3.0


def test_who_waits_for_a_reported_limit_leaves_the_declared_quota_to_others() -> None:
    """However often it was refused, it books next to nothing of it ahead."""
    processes, waits = Processes([0.001] * 4, partial(Partly, limit=3, period=90.0), quota="20/s"), list[float]()

    async def main() -> None:
        await processes.clients[3].get("/free")
        slow = [asyncio.ensure_future(processes.call(number % 3)) for number in range(24)]
        for _ in range(120):
            await asyncio.sleep(1)
            waits.append((await processes.clients[3].get("/free")).extensions["pace"]["waited"])
        for each in slow:
            each.cancel()
        await asyncio.gather(*slow, return_exceptions=True)

    processes.clock.run(main())
    assert max(waits) <= 0.5


class Refusing:
    """An API that refuses every seventh request for a while, and notes when they come."""

    def __init__(self, clock: SteppedClock, wait: str) -> None:
        self._clock, self._wait = clock, wait
        self.times: list[float] = []

    def answer(self, _path: str) -> tuple[int, dict[str, str], Any]:
        """Serve a request, or refuse it."""
        self.times.append(self._clock.now)
        return (200, {}, {}) if len(self.times) % 7 else (429, {"retry-after-ms": self._wait}, {})


def test_a_slot_before_the_end_of_a_pause_does_not_exceed_a_declared_quota() -> None:
    """It is not used as late as the pause has ended, just before the next one."""
    processes = Processes([0.001] * 4, partial(Refusing, wait="1900"), quota="1/s", max_delay=1000.0)
    processes.run(100.0)
    times = processes.api.times
    assert all(after - before >= 0.95 for before, after in pairwise(times))


@pytest.mark.parametrize("quota", ["15 per 20 s rolling", "15 per 20 s burst 15"])
def test_a_request_that_a_pause_holds_up_has_not_left(quota: str) -> None:
    """So it has its slot of the declared quota when the pause is over."""
    processes = Processes([0.01], partial(Refusing, wait="1000"), quota=quota)

    async def main() -> None:
        async def come(after: float) -> None:
            await asyncio.sleep(after)
            await processes.call(0)

        await processes.call(0)
        await asyncio.gather(*[come(number * 0.002) for number in range(12)])

    processes.clock.run(main())
    assert processes.served[0] == 13
    assert processes.longest <= 4.0
