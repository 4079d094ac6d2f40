"""What requests really cost: when ``settle`` is called, with what, and what becomes of the charge."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from asgi_ratelimit import Limiter, MemoryStore, PacedTransport, PaceTimeout, TokenBucket
from asgi_ratelimit.hooks import failures
from asgi_ratelimit.profiles import LearnedEstimate
from asgi_ratelimit.testing import SteppedClock
from tests.support.names import named
from tests.support.paced_clients import URL, Client, async_streamed

TOKENS = TokenBucket(1, 3600, burst=100, name="tokens")
REQUESTS = TokenBucket(1, 3600, burst=100, name="requests")


def left(client: Client, *quotas: TokenBucket) -> list[int]:
    """The units that are left of each quota."""
    limiter = Limiter(quotas or [TOKENS], store=client.store, name="outbound")
    return [state.remaining for state in client.clock.run(limiter.peek("one.example")).states]


def reading_body(function: Any) -> Any:
    """A ``settle`` function that is called when the body is closed."""
    function.reads_body = True
    return function


@pytest.mark.parametrize(("actual", "units"), [(3, 97), (0, 100), (20.0, 80), (None, 90)], ids=named)
def test_a_request_is_settled_at_its_headers(client: Client, actual: float | None, units: int) -> None:
    """To less, to nothing, to more; ``None`` leaves the charge."""
    seen: list[Any] = []

    def settle(answer: Any) -> float | None:
        seen.append((answer.status_code, answer.headers["x-cost"], answer.body))
        return actual

    client.get(URL, quota=TOKENS, cost=10, settle=settle, answers=[(200, {"X-Cost": "3"})])
    assert seen == [(200, "3", b"")]
    assert left(client) == [units]


def test_requests_that_wait_to_spend_observe_a_pause(module: Any) -> None:
    """That has begun since they began to wait."""
    clock, sent = SteppedClock(0), list[float]()

    def answer(request: Any) -> Any:
        sent.append(clock.now)
        return module.Response(429, headers={"retry-after": "30"}) if len(sent) == 3 else module.Response(200)

    transport = PacedTransport(
        module.MockTransport(answer), "10/s", settle=lambda answer: None, store=MemoryStore(clock=clock)
    )

    async def main() -> None:
        await asyncio.gather(*[transport.handle_async_request(module.Request("GET", URL)) for _ in range(20)])

    clock.run(main())
    assert min(sent[3:]) >= sent[2] + 30


def test_refusals_teach_no_estimate(client: Client) -> None:
    """They use nothing, and requests would come faster the more of them are refused."""
    cost = LearnedEstimate(lambda request: 10, by=lambda request: "all")
    client.get(*[URL] * 3, quota=TOKENS, cost=cost, settle=lambda answer: 0, answers=[429, 400, 503])
    assert cost(None) == 10


def test_each_quota_may_be_settled(client: Client) -> None:
    """By its name; a quota that is not named keeps its charge."""
    client.get(
        URL,
        quota=[REQUESTS, TOKENS],
        cost={"requests": 1, "tokens": lambda request: 40},
        settle=lambda answer: {"tokens": 15},
    )
    assert left(client, REQUESTS, TOKENS) == [99, 85]


def test_a_body_is_read_as_it_was_transferred(module: Any) -> None:
    """Settled when it is closed; the caller gets the same parts."""
    client, seen = Client(module, True), list[bytes]()
    client.service.body = async_streamed
    settle = reading_body(lambda answer: seen.append(answer.body) or 1)

    async def main() -> list[bytes]:
        async with (
            module.AsyncClient(transport=client.transport(TOKENS, cost=10, settle=settle)) as paced,
            paced.stream("GET", URL) as answer,
        ):
            parts = [part async for part in answer.aiter_raw()]
            return [*parts, *seen]

    assert client.clock.run(main()) == [b"hel", b"lo", b"hello"]
    assert left(client) == [99]


def test_the_beginning_and_the_end_of_a_long_body_are_kept(module: Any) -> None:
    """At least half a megabyte of each, and 2 MB at most; all of it is passed on."""
    client, seen = Client(module, False), list[bytes]()

    def large() -> Any:
        for part in range(50):
            yield bytes([part]) * 300_000

    client.service.body = large
    settle = reading_body(lambda answer: seen.append(answer.body) or 1)
    with module.Client(transport=client.transport(TOKENS, cost=10, settle=settle)) as paced:
        content = paced.get(URL).content
    assert len(content) == 15_000_000
    assert len(seen[0]) <= 2 * 2**20
    assert (seen[0][: 2**19], seen[0][-(2**19) :]) == (content[: 2**19], content[-(2**19) :])


@pytest.mark.parametrize("settle", [lambda _: -1, lambda _: {"tonkens": 1}, lambda answer: answer.usage], ids=range(3))
def test_a_settle_function_that_fails_fails_no_request(
    client: Client, settle: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged once a minute, and reported to hooks; the charges stand."""
    failed: list[Any] = []
    with caplog.at_level(logging.ERROR, logger="asgi_ratelimit"):
        answers = client.get(URL, URL, quota=TOKENS, cost=10, settle=settle, hooks=[failures(failed.append)])
    assert [answer.status_code for answer in answers] == [200, 200]
    assert len(caplog.records) == 1
    assert [(failure.name, failure.failed) for failure in failed] == [("outbound", "settle")] * 2
    assert left(client) == [80]


class Estimate:
    """A cost that records what it learns."""

    def __init__(self, cost: Any) -> None:
        self.cost = cost
        self.learned: list[Any] = []

    def __call__(self, _: Any) -> Any:
        return self.cost

    def learn(self, request: Any, charged: Any, actual: Any) -> None:
        self.learned.append((request.url.host, charged, actual))


def test_an_estimate_learns_from_settlements(client: Client) -> None:
    """From what was charged, and what it really was; not from requests that are not settled."""
    estimate = Estimate({"tokens": 10})
    actuals = iter([{"tokens": 3}, None])
    client.get(URL, URL, quota=[REQUESTS, TOKENS], cost=estimate, settle=lambda answer: next(actuals))
    assert estimate.learned == [("one.example", {"tokens": 10}, {"tokens": 3})]


def test_a_request_that_is_sent_again_costs_once_more(client: Client) -> None:
    """Only the last answer is settled."""
    statuses: list[int] = []
    settle = lambda answer: statuses.append(answer.status_code) or 1  # noqa: E731
    client.get(URL, quota=TOKENS, cost=10, settle=settle, retries=1, answers=[(503, {"retry-after": "1"})])
    assert statuses == [200]
    assert left(client) == [89]


def test_a_refusal_that_slows_one_of_equal_costs_down_leaves_one_number_for_all(client: Client) -> None:
    """The settlement of what is sent again is of each quota, as without a refusal."""
    quotas, failed = [TokenBucket(10, 10, burst=10, name="own"), TokenBucket(50, burst=1, name="all")], list[Any]()
    options: Any = {"settle": lambda answer: 0.5, "hooks": [failures(failed.append)]}
    client.get(
        URL, URL, URL, quota=quotas, key={"own": "a", "all": ""}, answers=[(429, {"retry-after": "1"})], **options
    )
    assert failed == []


def test_estimates_that_are_too_high_hold_nobody_up(module: Any) -> None:
    """Nothing is booked ahead, so that what comes back is used at once: in 100 s, not in the 300 s of the estimates.

    Two estimates fit into the burst, and each answer comes after a second.
    """
    client = Client(module, True)

    async def slow(_: Any) -> Any:
        await asyncio.sleep(1)
        return module.Response(200)

    quota = TokenBucket(1000, burst=3000, name="tokens")
    inner = module.MockTransport(slow)
    transport = PacedTransport(inner, quota, cost=1500, settle=lambda _: 300, store=client.store)

    async def main() -> None:
        async with module.AsyncClient(transport=transport, timeout=None) as paced:
            await asyncio.gather(*[paced.get(URL) for _ in range(200)])

    client.clock.run(main())
    assert client.clock.now == pytest.approx(100, rel=0.01)


def test_a_request_that_cannot_be_charged_in_time_raises(client: Client) -> None:
    """At once, if no unit can come back any more."""
    transport = client.transport(TOKENS, cost=60, settle=lambda _: None, max_delay=5.0)
    client.get(URL, transport=transport)
    with pytest.raises(PaceTimeout):
        client.get(URL, transport=transport)
    assert client.clock.now == 0.0
