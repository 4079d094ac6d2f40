"""Summaries: what several processes have published, added up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import httpx
import pytest

from asgi_ratelimit import AdaptiveTransport, Limiter, MemoryStore, RedisStore, Store
from asgi_ratelimit.counts import MINUTES, document_of, publish, stop_publishing
from asgi_ratelimit.dashboard import Summaries, summary
from asgi_ratelimit.stores.documents import documents
from asgi_ratelimit.testing import SteppedClock
from tests.support.clocks import wrong_clock

pytestmark = pytest.mark.anyio


@pytest.fixture
async def processes(redis_url: str, clock: SteppedClock) -> AsyncIterator[list[Store]]:
    """The stores of three processes on one Redis."""
    clock.advance(10)
    stores: list[Store] = [RedisStore(redis_url, clock=clock, timeout=30) for _ in range(3)]
    yield stores
    for store in stores:
        await store.aclose()


async def take(store: Store, key: str = "ann", times: int = 1, name: str = "mails") -> None:
    """Take from a limiter, and publish that."""
    publish(store)
    limiter = Limiter("3/minute", store=store, name=name)
    for _ in range(times):
        await limiter.rate_limit(key)
    await stop_publishing(store)


async def test_processes_are_added_up(processes: list[Store]) -> None:
    """Every process sees the sums of all of them."""
    for store, times in zip(processes, (1, 2, 3)):
        await take(store, times=times)
    for store in processes:
        read = await summary(store)
        (rule,) = read.rules
        assert (rule.name, rule.admitted, rule.refused) == ("mails", 3, 3)
        assert len(read.processes) == 3
        assert [(key.key, key.requests, key.refused) for key in read.keys] == [("ann", 6, 3)]
        assert sum(map(sum, read.seconds.values())) == 6


async def test_the_quotas_that_programs_say(clock: SteppedClock) -> None:
    """They are texts that can be parsed again."""
    store = MemoryStore(clock=clock)
    limiter = Limiter(["3/minute", "20/hour"], store=store, name="mails")
    publish(store)
    await limiter.rate_limit("ann")
    await stop_publishing(store)
    assert [rule.quotas for rule in (await summary(store)).rules] == ["3/minute; 20/hour"]


async def test_an_hour_later_all_is_forgotten(clock: SteppedClock) -> None:
    """Minutes leave the summary one by one, also of a process that is gone."""
    store = MemoryStore(clock=clock)
    clock.advance(10)
    summaries = Summaries(store)
    await take(store)
    seen = []
    for _ in range(MINUTES + 1):
        read = await summaries.read()
        seen.append([sum(minute) for rule in read.rules for minute in rule.minutes].count(1))
        clock.advance(60)
    assert seen == [1] * MINUTES + [0]


@pytest.mark.parametrize("hours", [-30, -1, 1, 30])
@pytest.mark.parametrize("is_reader", [False, True], ids=["the writer", "the reader"])
async def test_a_process_whose_clock_is_wrong(redis_url: str, hours: int, is_reader: bool) -> None:
    """Its counts, and what it reads, are those of the minutes of the server."""
    with wrong_clock(hours):
        wrong = RedisStore(redis_url, timeout=30)
        wrong_summaries = Summaries(wrong)
        publish(wrong)
    right = RedisStore(redis_url, timeout=30)
    await take(right if is_reader else wrong)
    read = await (wrong_summaries if is_reader else Summaries(right)).read()
    assert [rule.admitted for rule in read.rules] == [1]
    assert sum(map(sum, read.seconds.values())) == 1
    assert read.now == pytest.approx(time.time(), abs=60)
    await asyncio.gather(wrong.aclose(), right.aclose())


async def test_minutes_that_come_late_are_found(processes: list[Store], clock: SteppedClock) -> None:
    """A reader that has read a minute before finds what another process publishes of it later."""
    summaries = Summaries(processes[0])
    await summaries.read()
    await take(processes[1])
    late = document_of(int(clock.now) // 60)
    ((part, content),) = (await documents(processes[1]).read_parts(late)).items()
    await documents(processes[1]).write_part(late, part, b"", seconds=3600)
    clock.advance(300)
    for _ in range(2 * MINUTES):
        assert [rule.admitted for rule in (await summaries.read()).rules] == []
    await documents(processes[1]).write_part(late, part, content, seconds=3600)
    for _ in range(MINUTES):
        read = await summaries.read()
    assert [rule.admitted for rule in read.rules] == [1]


@pytest.mark.parametrize("content", [b"", b"nonsense", b"{}\n", b'{"format":99,"minute":1}\n', b"[]\n"])
async def test_what_cannot_be_read_is_left_out(clock: SteppedClock, content: bytes) -> None:
    """A part that a newer version has written, or nobody, hides nothing else."""
    store = MemoryStore(clock=clock)
    await documents(store).write_part(document_of(int(clock.now) // 60), "other", content, seconds=3600)
    clock.advance(10)
    await take(store)
    assert [rule.admitted for rule in (await summary(store)).rules] == [1]


async def test_long_keys_are_told_apart(clock: SteppedClock) -> None:
    """Of a key that is stored as a hash, there is no key, but a bucket."""
    store = MemoryStore(clock=clock)
    await take(store, key="é" * 100)
    await take(store, key="été")
    keys = (await summary(store)).keys
    assert sorted([key.key or "" for key in keys]) == ["", "été"]
    assert len({key.bucket for key in keys}) == 2


async def test_what_a_transport_has_learned(clock: SteppedClock) -> None:
    """A process publishes it with its counts, and so do callers that wait for slots."""

    def answer(request: httpx.Request) -> httpx.Response:
        headers = {"x-ratelimit-limit": "60", "x-ratelimit-remaining": "58", "x-ratelimit-reset": "30"}
        return httpx.Response(200, headers=headers)

    transport = AdaptiveTransport(httpx.MockTransport(answer))
    async with httpx.AsyncClient(transport=transport) as client:
        await client.get("http://api.example/things")
        store = MemoryStore(clock=clock)
        await take(store)
    learned = [row for row in (await summary(store)).learned if row.host == "api.example"]
    assert [row.limit for row in learned] == [60]
