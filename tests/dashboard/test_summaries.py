"""Summaries: what several processes have published, added up; and what another limit would have refused."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asgi_ratelimit import Charge, ConfigurationError, Limiter, MemoryStore, Quota, RedisStore, Store, parse_quotas
from asgi_ratelimit.algorithms.take import decide, unused
from asgi_ratelimit.counts import ALL, HOURS, MINUTES, Recording, counts_of
from asgi_ratelimit.dashboard import Summaries, summary
from asgi_ratelimit.dashboard.summaries import estimate
from asgi_ratelimit.testing import SteppedClock
from tests.support.clocks import wrong_clock
from tests.support.dashboards import take

pytestmark = pytest.mark.anyio


@pytest.fixture
async def processes(redis_url: str, clock: SteppedClock) -> AsyncIterator[list[Store]]:
    """The stores of three processes on one Redis."""
    clock.advance(10)
    stores: list[Store] = [RedisStore(redis_url, clock=clock, timeout=30) for _ in range(3)]
    yield stores
    for store in stores:
        await store.aclose()


async def take_and_publish(store: Store, times: int = 1) -> None:
    """Take from a limiter, and publish that."""
    await take(store, times=times)
    await counts_of(store).end()


async def test_processes_are_added_up(processes: list[Store], clock: SteppedClock) -> None:
    """Every process sees the sums of all of them; an hour later as well, although they have ended."""
    for store, times in zip(processes, (1, 2, 3)):
        await take_and_publish(store, times=times)
    for store in processes:
        read = await summary(store)
        (rule,) = read.rules
        assert (rule.name, rule.admitted, rule.refused) == ("mails", 3, 3)
        assert len(read.processes) == 3
        assert [(key.key, key.requests, key.refused) for key in read.keys] == [("ann", 6, 3)]
        assert sum(map(sum, read.seconds.values())) == 6
    clock.advance(3600)
    assert (await summary(processes[0])).hours[-2] == (3, 3, 0, 0, 0)


async def test_an_hour_and_a_day_later(clock: SteppedClock) -> None:
    """Minutes leave the summary one by one, and hours a day later, also of a process that is gone."""
    store = MemoryStore(clock=clock)
    clock.advance(10)
    summaries = Summaries(store)
    await take_and_publish(store, times=4)
    minutes, hours = [], []
    for minute in range(HOURS * 60 + 1):
        read = await summaries.read()
        if minute <= MINUTES:
            minutes.append([numbers[:2] for rule in read.rules for numbers in rule.minutes].count((3, 1)))
        hours.append(list(read.hours).count((3, 1, 0, 0, 0)))
        clock.advance(60)
    assert minutes == [1] * MINUTES + [0]
    assert hours == [1] * HOURS * 60 + [0]


async def test_the_store_of_summaries() -> None:
    """It may be a URL, as of the page, but not one of a new memory, which has no counts."""
    Summaries("redis://localhost:1/0")
    for wrong in (None, "memory://"):
        with pytest.raises(ConfigurationError, match=f"needs the store of the limits, not {wrong!r}: Summaries"):
            await summary(wrong)  # type: ignore[arg-type]


async def test_a_key_of_several_quotas(clock: SteppedClock) -> None:
    """It has one row, whichever of them refuses, which says since when."""
    store = MemoryStore(clock=clock)
    limiter = Limiter("1/second; 2/minute", store=store, name="mails")
    for _ in range(6):
        await limiter.rate_limit("ann")
        clock.advance(10)
    (key,) = (await summary(store)).keys
    assert (key.requests, key.refused, key.since) == (6, 3, clock.now - 60)


@pytest.mark.parametrize("hours", [-30, -1, 1, 30])
@pytest.mark.parametrize("is_reader", [False, True], ids=["the writer", "the reader"])
async def test_a_process_whose_clock_is_wrong(redis_url: str, hours: int, is_reader: bool) -> None:
    """Its counts, and what it reads, are those of the minutes of the server."""
    with wrong_clock(hours):
        wrong = RedisStore(redis_url, timeout=30)
        wrong_summaries = Summaries(wrong)
        counts_of(wrong)
    right = RedisStore(redis_url, timeout=30)
    await take_and_publish(right if is_reader else wrong)
    read = await (wrong_summaries if is_reader else Summaries(right)).read()
    assert [rule.admitted for rule in read.rules] == [1]
    assert sum(map(sum, read.seconds.values())) == 1
    assert read.now == pytest.approx(time.time(), abs=60)
    await asyncio.gather(wrong.aclose(), right.aclose())


MINUTE = 30_000_000


def recorded(requests: dict[str, list[int]], below: int = ALL) -> list[tuple[int, Recording]]:
    """Recordings of requests, by client and in seconds from the start of a minute; one request in each second."""
    minutes: dict[int, Recording] = {}
    for client, seconds in requests.items():
        for second in seconds:
            recording = minutes.setdefault(MINUTE + second // 60, Recording(below))
            recording.add(second % 60, Counter({client: 1}), 10**9)
    return list(minutes.items())


def admitted_at(quotas: Sequence[Quota], times: Sequence[float]) -> list[float | None]:
    """The times in seconds at which requests of these times are admitted; ``None`` for each that is refused."""
    charges = [Charge(quota, "key") for quota in quotas]
    states = [unused(quota, times[0] * 1e6) for quota in quotas]
    admitted: list[float | None] = []
    for at in times:
        _, after = decide(charges, states, float(round(at * 1e6)), 0.0)
        states = after or states
        admitted.append(at if after else None)
    return admitted


@given(
    st.sets(st.integers(0, 1800), min_size=1), st.sampled_from(["3/minute", "5 per 10 seconds fixed", "4/hour rolling"])
)
def test_one_request_a_second_is_decided_exactly(seconds: set[int], text: str) -> None:
    """For a client that is recorded whole, and does not send twice in a second, it is what the limit does."""
    quotas = parse_quotas(text)
    times = sorted(seconds)
    exact = admitted_at(quotas, [MINUTE * 60.0 + second for second in times]).count(None)
    found = estimate(recorded({"ann": times}), quotas)
    assert (found.requests, found.refused, found.share) == (len(times), exact, 1.0)


def test_requests_in_flight_are_not_estimated() -> None:
    """How long requests took is not recorded, so only the rates beside them are tried."""
    recordings = recorded({"ann": [0, 1, 2]})
    rates = estimate(recordings, parse_quotas("2/minute"))
    assert (rates.refused, rates) == (1, estimate(recordings, parse_quotas("2/minute; 1 at once")))
    assert estimate(recordings, parse_quotas("1 at once")).requests == 0


def test_recordings_with_different_bounds() -> None:
    """A client counts only where every recording is sure to have it."""
    every = recorded({str(number): [0] for number in range(1000)})
    half = recorded({str(number): [60] for number in range(1000)}, ALL // 2)
    found = estimate([*every, *half], parse_quotas("1/hour"))
    assert found.share == 0.5
    assert found.requests == 2 * found.clients
    assert found.refused == found.refused_clients == found.clients
