"""How a request is sent: pauses, and the limit on concurrency."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from itertools import pairwise
from typing import Any

import pytest
import redis

from asgi_ratelimit import MemoryStore, PaceTimeout, RedisStore
from asgi_ratelimit.background import background_loop
from asgi_ratelimit.clock import monotonic_us
from asgi_ratelimit.outbound.pauses import Pauses
from asgi_ratelimit.waiting.drivers import run_async, run_sync
from tests.support.late_stores import LateAnswers
from tests.support.paced_clients import OTHER, URL, Client, Held, async_streamed, streamed
from tests.support.store_elsewhere import StoreElsewhere

LATER = (429, {"retry-after": "2"})


def test_a_refusal_pauses_its_key(client: Client) -> None:
    """The caller gets the refusal; later requests wait as long as it says; other keys do not."""
    answers = client.get(URL, OTHER, URL, URL, answers=[LATER])
    assert [answer.status_code for answer in answers] == [429, 200, 200, 200]
    assert client.service.times == [0.0, 0.0, 2.0, 2.1]


def test_a_pause_is_kept_in_redis(redis_url: str) -> None:
    """Another process can read it there, and it expires by itself."""
    stores = [RedisStore(redis_url, timeout=30, on_error="deny") for _ in range(2)]
    own, other = (Pauses(store, "outbound", monotonic_us) for store in stores)
    run_sync(own.begin("one.example", 3600))
    assert 3590e6 < run_sync(other.left_us("one.example")) <= 3600e6
    assert run_sync(other.left_us("two.example")) == 0
    with redis.Redis.from_url(redis_url) as keys:
        (key,) = keys.keys("*one.example*")
        assert 0 < keys.pttl(key) <= 3_600_001
    for store in stores:
        background_loop.run(store.aclose())


def test_the_longest_of_several_pauses_counts(client: Client) -> None:
    """They do not add up, and a shorter one does not end a longer one."""
    pauses = Pauses(client.store, "outbound", client.clock.now_us)
    for seconds in (4.0, 5.0, 3.0, 5.0):
        run_sync(pauses.begin("one.example", seconds))
        client.clock.advance(0.001)
    client.get(URL)
    assert client.service.times == [5.003]


# Answers of the store that come late


def test_a_pause_that_another_process_begins_holds_up_all_whose_slots_are_still_to_come(module: Any) -> None:
    """Also those whose slots were booked before it began."""
    client = Client(module, True)
    store = LateAnswers(client.store, lambda now: 0.0 if now else 0.3)

    async def main() -> None:
        async with client.module.AsyncClient(transport=client.transport("1/s", store=store), timeout=None) as paced:
            requests = [asyncio.ensure_future(paced.get(URL)) for _ in range(3)]
            await asyncio.sleep(1.1)
            elsewhere = Pauses(StoreElsewhere(client.store, 0.0), "outbound", client.clock.now_us)
            await run_async(elsewhere.begin("one.example", 5.0))
            await asyncio.gather(*requests)

    client.clock.run(main())
    assert client.service.times == pytest.approx([0.3, 6.1, 7.1], abs=1e-4)


def test_requests_that_wait_for_a_late_answer_do_not_leave_together(module: Any) -> None:
    """The store stalls when it is asked for pauses: those whose slots have come meanwhile keep distance and order."""
    client = Client(module, True)
    store = LateAnswers(client.store, lambda now: 0.3 - 0.999 * now if 0.1 < now < 0.3 else 0.001)

    async def main() -> None:
        async with module.AsyncClient(transport=client.transport("100/s", store=store), timeout=None) as paced:
            await asyncio.gather(*[paced.get(f"{URL}{number}") for number in range(60)])

    client.clock.run(main())
    times = client.service.times
    assert len(times) == 60
    assert min(later - earlier for earlier, later in pairwise(times)) > 0.01 - 1e-5
    assert [path for _, path in client.service.requests] == [f"/{number}" for number in range(60)]
    assert times[-1] < 0.9


@pytest.mark.parametrize("waiting", [0, 1])
def test_a_request_that_is_cancelled_before_it_leaves_passes_its_slot_on(module: Any, waiting: int) -> None:
    """The store, which is asked for pauses when its slot has come, stalls. The next request goes instead."""
    client = Client(module, True)
    store = LateAnswers(client.store, lambda now: 1.0 if now == 10.0 else 0.0)

    async def main() -> None:
        transport = client.transport("1 per 10 seconds", store=store)
        async with client.module.AsyncClient(transport=transport, timeout=None) as paced:
            await paced.get(URL)
            cancelled = asyncio.ensure_future(paced.get(URL))
            await asyncio.sleep(0)
            others = [asyncio.ensure_future(paced.get(URL)) for _ in range(waiting)]
            await asyncio.sleep(10.5)
            cancelled.cancel()
            await asyncio.wait([cancelled])
            await asyncio.gather(*others, paced.get(URL))

    client.clock.run(main())
    assert client.service.times == [0.0, 10.5, 20.5][: 2 + waiting]


# Concurrency


def test_a_request_is_under_way_until_its_body_is_closed(module: Any) -> None:
    """At most ``concurrency`` requests of a key are."""
    client = Client(module, True)
    client.service.body = async_streamed
    events: list[tuple[float, str]] = []

    async def main() -> None:
        transport = client.transport("100/s", concurrency=2)
        async with module.AsyncClient(transport=transport) as paced:

            async def download(name: str, url: str) -> None:
                async with paced.stream("GET", url) as answer:
                    events.append((client.clock.now, f"{name} begins"))
                    await asyncio.sleep(1)
                    assert await answer.aread() == b"hello"

            await asyncio.gather(*[download(name, URL) for name in "abc"], download("other", OTHER))

    client.clock.run(main())
    assert events == [(0.0, "a begins"), (0.0, "other begins"), (0.01, "b begins"), (1.0, "c begins")]


UNDER_WAY = r"^no place for 'one\.example': as many requests as concurrency=1 are under way, max_delay is 0\.5 s$"


def test_a_request_that_finds_no_place_in_time_says_so(module: Any) -> None:
    """Its own ``max_delay`` counts; slots there are enough."""
    client = Client(module, True)
    client.service.body = async_streamed
    transport = client.transport("100/s", concurrency=1, max_delay=5)

    async def main() -> None:
        async with module.AsyncClient(transport=transport) as paced, paced.stream("GET", URL):
            with pytest.raises(PaceTimeout, match=UNDER_WAY):
                await paced.get(URL, extensions={"pace": {"max_delay": 0.5}})

    client.clock.run(main())
    assert client.clock.now == 0.5


def test_concurrency_without_async(module: Any) -> None:
    """A request that cannot wait until a body is closed raises; a forgotten body counts as closed."""
    client = Client(module, False)
    client.service.body = streamed
    transport = client.transport("100/s", concurrency=1, max_delay=0.5)
    with module.Client(transport=transport) as paced:
        with paced.stream("GET", URL), pytest.raises(PaceTimeout, match=UNDER_WAY):
            paced.get(URL)
        assert paced.get(URL).status_code == 200
        unclosed = paced.send(paced.build_request("GET", URL), stream=True)
        del unclosed
        gc.collect()
        assert paced.get(URL).status_code == 200


def test_a_cancelled_request_gives_its_slot_back(module: Any) -> None:
    """And its place under the concurrency limit."""
    client = Client(module, True)
    client.service.body = async_streamed
    transport = client.transport(concurrency=3, max_delay=5)

    async def main() -> None:
        async with module.AsyncClient(transport=transport) as paced:
            requests = [asyncio.ensure_future(paced.get(URL)) for _ in range(5)]
            await asyncio.sleep(0.05)
            for number in (1, 3):
                requests[number].cancel()
            await asyncio.gather(*requests, return_exceptions=True)
            async with contextlib.AsyncExitStack() as stack:
                for _ in range(3):
                    await stack.enter_async_context(paced.stream("GET", URL))

    client.clock.run(main())
    assert client.service.times[:3] == [0.0, 0.1, 0.2]
    assert len(client.service.times) == 6


class OutOfReach(MemoryStore):
    """A store that never answers when a pause begins."""

    async def take(self, takes: Any) -> Any:
        if takes[0].best_effort:
            await asyncio.sleep(3600)
        return await super().take(takes)


def test_an_answer_is_closed_if_its_request_is_cancelled(module: Any) -> None:
    """That happens while its pause is written to the store; the connection must not leak."""
    client = Client(module, True)
    client.store = OutOfReach(clock=client.clock)
    client.service.answers = [LATER]
    base = module.AsyncByteStream
    held = type("Stream", (Held, base), {})()
    client.service.body = lambda: held

    async def main() -> None:
        async with module.AsyncClient(transport=client.transport(concurrency=1)) as paced:
            request = asyncio.ensure_future(paced.get(URL))
            await asyncio.sleep(1)
            request.cancel()
            await asyncio.wait([request])
            assert request.cancelled()

    client.clock.run(main())
    assert held.closed


# One trip


def test_nothing_is_booked_for_a_request_that_would_wait_for_a_pause_for_too_long(client: Client) -> None:
    """It raises at once, and says how much longer it would take. A transport of another name does not pause."""
    client.get(URL, answers=[LATER])
    client.get(URL, name="elsewhere")
    with pytest.raises(PaceTimeout) as raised:
        client.get(URL, max_delay=1.5)
    assert raised.value.decision.retry_after == pytest.approx(0.5)
    assert client.clock.now == 0.0
    client.get(URL)
    assert client.service.times == [0.0, 0.0, 2.0]


def test_a_slot_that_was_booked_before_a_pause_is_given_back(module: Any) -> None:
    """A window is not used up by requests that did not go."""
    client = Client(module, True)

    async def main() -> None:
        async with module.AsyncClient(transport=client.transport("3 per 10 seconds fixed")) as paced:
            for _ in range(3):
                await paced.get(URL)
            late = [asyncio.ensure_future(paced.get(URL)) for _ in range(2)]
            await asyncio.sleep(9)
            run_sync(Pauses(client.store, "outbound", client.clock.now_us).begin("one.example", 4.0))
            await asyncio.gather(*late)
            await paced.get(URL)

    client.clock.run(main())
    assert client.service.times == [0.0, 0.0, 0.0, 13.0, 13.0, 13.0]


@pytest.mark.parametrize("on_error", ["allow", "local"])
def test_a_pause_is_observed_without_the_store(module: Any, on_error: Any) -> None:
    """By the process that was told to pause."""
    client = Client(module, False)
    client.store = store = RedisStore("redis://127.0.0.1:1", clock=client.clock, on_error=on_error)
    client.get(URL, OTHER, URL, quota="1000000/s", answers=[LATER])
    assert client.service.times[:2] == [0.0, 0.0]
    assert client.service.times[2] == pytest.approx(2.0)
    background_loop.run(store.aclose())


def test_an_outage_that_lets_everybody_pass_spaces_nobody(module: Any) -> None:
    """Nothing bounds the wait of one that no store has decided about."""
    client = Client(module, False)
    client.store = store = RedisStore("redis://127.0.0.1:1", clock=client.clock, on_error="allow")
    client.get(*[URL] * 4, quota="1/s burst 1")
    assert client.service.times == [0.0] * 4
    background_loop.run(store.aclose())
