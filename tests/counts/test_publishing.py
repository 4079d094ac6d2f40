"""Publishing: what a process writes into the store, and when."""

from __future__ import annotations

from itertools import count
from typing import Any
from unittest import mock
from weakref import WeakKeyDictionary

import pytest

from asgi_ratelimit import MemoryStore, RateLimitMiddleware, Rule, StoreTimeout
from asgi_ratelimit.counts import counts_of, document_of, part_of
from asgi_ratelimit.dashboard import summary
from asgi_ratelimit.testing import SteppedClock
from tests.support.asgi import ask, ok
from tests.support.dashboards import take
from tests.support.store_elsewhere import StoreElsewhere

pytestmark = pytest.mark.anyio


async def published(store: MemoryStore) -> tuple[int, int]:
    """How many were admitted and refused, as anybody can read it."""
    rules = [rule for rule in (await summary(store)).rules if rule.name == "mails"]
    return (rules[0].admitted, rules[0].refused) if rules else (0, 0)


async def test_nothing_is_written_while_nothing_changes(clock: SteppedClock) -> None:
    """A process writes a minute once for each second with changes, and, when it is over, once more, with its hour."""
    store, written = MemoryStore(clock=clock), list[str]()

    async def note(name: str, *arguments: object, **options: object) -> None:
        written.append(name)

    with mock.patch.object(store.documents, "write_part", note):
        for second in range(180):
            if second in (10, 11, 12):
                await take(store)
            counts_of(store).write_here()
            clock.advance(1)
    assert written == ["counts:30000000"] * 4 + ["counts:500000"]


async def test_what_servers_invent_is_bounded(clock: SteppedClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many limits a server names, and at whatever length, the counts of the process are published."""

    class Source:
        def outbound_rows(self) -> list[dict[str, object]]:
            return [{"name": f"{number}" + "b" * 4000, "waiting": number} for number in range(300)]

    store, source = MemoryStore(clock=clock), Source()
    monkeypatch.setattr("asgi_ratelimit.counts.outbound_sources", WeakKeyDictionary({source: None}))
    clock.advance(10)
    await take(store)
    counts_of(store).write_here()
    minute = int(clock.now) // 60
    ((_, content),) = (await store.documents.read_parts(document_of(minute))).items()
    part = part_of(content, minute)
    assert part is not None
    assert len(content) < 100_000
    assert part["rules"] == {"mails": [1, 0, 0, 0, 0]}
    assert len(part["queues"]) == 200


async def test_the_worst_keys_are_published(clock: SteppedClock) -> None:
    """Of many, those with the most refusals, and then those with the most requests."""
    store = MemoryStore(clock=clock)
    for number in range(300):
        await take(store, times=5 - number % 5, key=f"key {number}")
    keys = (await summary(store)).keys
    expected = [(5, 2)] * 60 + [(4, 1)] * 60 + [(3, 0)] * 60 + [(2, 0)] * 20
    assert [(key.requests, key.refused) for key in keys] == expected


async def test_a_request_counts_once_in_each_second(clock: SteppedClock) -> None:
    """Under several rules, it is one request: refused, or else what a shadow rule says, or else admitted."""
    store = MemoryStore(clock=clock)
    rules = [Rule("/", "3/minute", name="tight"), Rule("/", "4/minute", name="wide")]
    rules += [Rule("/", "2/minute", name="candidate", shadow=True)]
    app = RateLimitMiddleware(ok, "100/minute", rules=rules, store=store, name="api")
    clock.advance(10)
    for _ in range(5):
        await ask(app)
    read = await summary(store)
    expected = {"api": (3, 0, 0, 0, 0), "wide": (3, 0, 0, 0, 0), "tight": (3, 2, 0, 0, 0), "candidate": (2, 0, 3, 0, 0)}
    assert {rule.name: rule.minutes[-1] for rule in read.rules} == expected
    assert [numbers for numbers in read.seconds.values() if any(numbers)] == [(2, 2, 1, 0, 0)]
    assert read.minutes[-1] == read.hours[-1] == (2, 2, 1, 0, 0)


async def test_in_memory_each_second_is_known_without_a_reader(clock: SteppedClock) -> None:
    """What comes in a later second has the earlier one written, as of when it came."""
    store = MemoryStore(clock=clock)
    clock.advance(10)
    await take(store, times=2)
    clock.advance(120)
    await take(store, times=3)
    clock.advance(600)
    (rule,) = (await summary(store)).rules
    assert [sum(minute) for minute in rule.minutes if any(minute)] == [2, 3]
    assert [place for place, minute in enumerate(rule.minutes) if any(minute)] == [47, 49]


@pytest.mark.parametrize("start", [50.0, 57.25, 58.75, 59.0, 59.75])
@pytest.mark.parametrize("every", [1, 2, 3, 100])
async def test_no_count_is_lost_at_the_border_of_minutes(clock: SteppedClock, start: float, every: int) -> None:
    """With a store that answers each second, third or hundredth time only until the end, or a clock that goes back."""
    store, calls = MemoryStore(clock=clock), count(1)
    write_part = store.documents.write_part

    async def sometimes(*arguments: Any, **options: Any) -> None:
        if next(calls) % every and clock.now < began + 4:
            raise StoreTimeout("no answer")
        await write_part(*arguments, **options)

    clock.advance(start)
    began = clock.now
    with mock.patch.object(store.documents, "write_part", sometimes):
        for number in range(20):
            await take(store, times=number < 12, key=f"key {number}")
            clock.advance(0.25 if every > 1 or number not in (6, 8) else -1.25)
            counts_of(store).write_here()
    assert await published(store) == (12, 0)


@pytest.mark.usefixtures("unpublished")
async def test_a_late_run_beside_a_server_loses_no_count(clock: SteppedClock) -> None:
    """It has begun the next minute where the clock then goes back."""
    store = StoreElsewhere(MemoryStore(clock=clock))
    for seconds in (60.7, -0.8, 2.0):
        await take(store)
        clock.advance(seconds)
        await counts_of(store).run()
    assert await published(store) == (3, 0)
