"""A server that says nothing of its limit, and refuses above it: the transport finds the rate, and stays near it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from asgi_ratelimit import ConfigurationError
from asgi_ratelimit.outbound.adaptive.hidden import RateBucket
from asgi_ratelimit.profiles import HiddenRate, aimd
from tests.stand_ins.counting_server import Bucket, Counter, Fixed, Rolling, Spaced
from tests.support.adaptive_clients import Caller

RATE = 5.0
SERVERS: dict[str, Callable[[], Counter]] = {
    "bucket": lambda: Bucket(RATE, RATE),
    "no burst": lambda: Bucket(RATE, 1),
    "spaced": lambda: Spaced(1 / RATE, 0.0),
    "windows": lambda: Fixed(RATE, 1.0),
    "rolling": lambda: Rolling(RATE, 1.0),
}


def hidden(
    counter: Counter, headers: dict[str, str] | None = None, **options: Any
) -> tuple[Caller, list[tuple[float, bool]]]:
    """A caller of a server that counts like this, and a list of the times and outcomes of its requests."""
    outcomes: list[tuple[float, bool]] = []

    def script(path: str, number: int) -> Any:
        now = caller.clock.now
        is_served = counter.wait(now) == 0.0
        outcomes.append((now - caller.service.started, is_served))
        return 200 if is_served else (429, headers or {})

    caller = Caller(script, **options)
    return caller, outcomes


async def keep_busy(client: httpx.AsyncClient, now: Callable[[], float], seconds: float, callers: int) -> None:
    """Send requests all the time, as many at once as there are callers."""
    end = now() + seconds

    async def work() -> None:
        while now() < end:
            await client.get("/a")

    await asyncio.gather(*[work() for _ in range(callers)])


def served_and_refused(outcomes: list[tuple[float, bool]], first: float, last: float) -> tuple[int, int]:
    """How many requests were served and refused between two times."""
    within = [is_served for at, is_served in outcomes if first <= at < last]
    return sum(within), len(within) - sum(within)


@pytest.mark.parametrize("start", [RATE / 10, RATE * 10], ids=["from a tenth", "from ten times"])
@pytest.mark.parametrize("kind", SERVERS)
def test_the_rate_is_found_and_kept(kind: str, start: float) -> None:
    """After a minute at the latest, 85 % of it is used, and fewer than 3 % of the requests are refused."""
    caller, outcomes = hidden(SERVERS[kind](), latency=0.05, profile=aimd(RATE / 100, RATE * 20, start=start))
    caller.run(lambda client: keep_busy(client, lambda: caller.clock.now, 120.0, 8))
    served, refused = served_and_refused(outcomes, 60.0, 120.0)
    assert served >= 0.85 * RATE * 60
    assert refused < 0.03 * (served + refused)


@pytest.mark.parametrize(("profile", "rate"), [("stripe", 25.0), ("slack", 1.0)])
def test_an_api_whose_answers_report_nothing(profile: str, rate: float) -> None:
    """A 429 with a ``Retry-After`` is all that it says: its profile searches for the rate."""
    caller, outcomes = hidden(Bucket(rate, rate), {"retry-after": "1"}, profile=profile, retries=10)
    count = int(30 * rate)
    assert caller.get(*["/v1/charges"] * count) == [200] * count
    assert len(outcomes) - count <= max(0.03 * count, 2)
    assert outcomes[-1][0] <= 45


def test_a_limit_that_rises_is_found() -> None:
    """From 2 to 20 a second, within two minutes."""
    counter = Bucket(2.0, 2.0)
    caller, outcomes = hidden(counter, latency=0.05, profile=aimd(0.5, 100))

    async def main(client: httpx.AsyncClient) -> None:
        await keep_busy(client, lambda: caller.clock.now, 60.0, 8)
        counter.rate = counter.burst = 20.0
        await keep_busy(client, lambda: caller.clock.now, 135.0, 8)

    caller.run(main)
    assert served_and_refused(outcomes, 180.0, 195.0)[0] >= 0.8 * 20 * 15


def test_a_server_that_refuses_everything_is_left_alone() -> None:
    """The pauses grow longer, and the rate is tried again when it serves."""
    is_out = [True]
    caller = Caller(lambda path, number: 429 if is_out[0] else 200, profile=aimd(5, 100, start=50), retries=0)

    async def main(client: httpx.AsyncClient) -> list[int]:
        await keep_busy(client, lambda: caller.clock.now, 300.0, 8)
        sent = len(caller.service.sent)
        is_out[0] = False
        await keep_busy(client, lambda: caller.clock.now, 90.0, 8)
        return [sent, len(caller.service.sent) - sent]

    while_out, afterwards = caller.run(main)
    assert while_out < 40
    assert afterwards > 5 * 20


def test_who_sends_little_does_not_raise_the_rate() -> None:
    """A request now and then says nothing of how many more would have been served."""
    caller = Caller(lambda path, number: 200, profile=aimd(1, 1000), latency=0.0)

    async def main(client: httpx.AsyncClient) -> list[Any]:
        for _ in range(60):
            await client.get("/a")
            await asyncio.sleep(5)
        return [bucket.limit for bucket in caller.transport.state()]

    assert caller.run(main) == [1.0]


def test_who_looks_changes_nothing() -> None:
    """After a pause, requests are spaced as before it, whoever has asked for the state meanwhile."""
    caller = Caller(lambda path, number: 200, profile=aimd(1, 1), latency=0.0)

    async def main(client: httpx.AsyncClient) -> None:
        await client.get("/a")
        await asyncio.sleep(0.5)
        assert [*caller.transport.state(), *caller.transport.outbound_rows()]
        await asyncio.sleep(9.5)
        await asyncio.gather(*[client.get("/a") for _ in range(3)])

    caller.run(main)
    assert caller.service.times == [0.0, 10.0, *[pytest.approx(at, abs=0.01) for at in (11.0, 12.0)]]


bounds = st.tuples(st.floats(0.01, 1000), st.sampled_from([1.0, 2.0, 50.0]), st.sampled_from([0.0, 0.5, 1.0])).map(
    lambda drawn: (drawn[0], drawn[0] * drawn[1], drawn[0] + (drawn[0] * drawn[1] - drawn[0]) * drawn[2])
)
steps = st.lists(
    st.tuples(
        st.floats(0, 30), st.sampled_from(["send", "serve", "send", "serve", "refuse", "late"]), st.floats(0, 10)
    ),
    min_size=10,
    max_size=60,
)


@given(bounds, steps)
@example((1000.0, 1000.0, 1000.0), [(0.0, step, 0.0) for step in ["send", "send", "refuse", "send", "refuse", "serve"]])
def test_the_rate_never_leaves_its_bounds(
    bounds: tuple[float, float, float], steps: list[tuple[float, str, float]]
) -> None:
    """Whatever comes of requests, and whenever: no more leave than the ceiling allows, and the next may go in time."""
    floor, ceiling, start = bounds
    bucket = RateBucket(HiddenRate(floor, ceiling, min(max(start, floor), ceiling)))
    now, sent, left = 0.0, list[int](), list[float]()
    for seconds, step, wait in steps:
        ready = bucket.ready_at(now)
        assert ready - now <= 1e6 / floor + 1
        now = max(now, ready) if step == "send" else now + seconds * 1e6
        if step == "send":
            bucket.admit(now)
            sent.append(bucket.send(now))
            left.append(now)
        elif sent:
            epoch = sent.pop(0 if step == "late" else -1)
            if step == "refuse":
                bucket.refuse(epoch, wait * 1e6, now)
            else:
                bucket.serve(now)
            bucket.end(epoch, now)
        assert floor * (1 - 1e-9) <= bucket.limit <= ceiling * (1 + 1e-9)
    late = max(2_000.0, 1e6 / floor)
    for first, at in enumerate(left):
        for count, later in enumerate(left[first:]):
            assert count <= 1 + (later - at + late) * ceiling / 1e6 + 1e-6


@pytest.mark.parametrize(
    ("arguments", "text"),
    [((0, 10), "0"), ((10, 1), "10, 1"), ((1, math.inf), "inf"), (("1", 10), "'1'"), ((1, 10, 20), "1, 20, 10")],
)
def test_wrong_bounds_are_refused(arguments: Any, text: str) -> None:
    """With what was given, and an example."""
    floor, ceiling, *start = arguments
    with pytest.raises(ConfigurationError, match=rf"(?s){text}.*aimd\(0.5, 100\)"):
        aimd(floor, ceiling, start=start[0] if start else None)
