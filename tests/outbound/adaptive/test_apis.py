"""How other APIs than Discord say their limits, and what the transport does then."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
from typing import Any

import httpx
import pytest

from asgi_ratelimit import AdaptiveTransport, ConfigurationError, MemoryStore, PaceTimeout, QuotaError
from asgi_ratelimit.testing import SteppedClock
from tests.support.adaptive_clients import Caller
from tests.support.simulated_fleet import Fleet

REPO, SEARCH = "/repos/one/issues", "/search/code"


def github(remaining: int, reset: float, resource: str = "core", limit: int = 60) -> dict[str, str]:
    """The headers of GitHub; ``reset`` is a Unix time."""
    headers = {"x-ratelimit-limit": str(limit), "x-ratelimit-remaining": str(remaining)}
    return headers | {"x-ratelimit-reset": f"{reset:.0f}", "x-ratelimit-resource": resource}


def test_a_403_of_github_is_a_refusal() -> None:
    """The primary limit is exhausted: its resource waits for the reset, in seconds since 1970, and others go on."""

    def script(path: str, number: int) -> Any:
        now = caller.clock.now
        if path == SEARCH:
            return 200, github(9, now + 60, "search", 10)
        return (403, github(0, now + 300)) if number == 1 else (200, github(59, now + 3600))

    caller = Caller(script, profile="github")

    async def main(client: httpx.AsyncClient) -> list[int]:
        first = asyncio.create_task(client.get(REPO))
        await asyncio.sleep(1)
        others = [client.get(path) for path in (SEARCH, SEARCH, "/repos/two")]
        return [answer.status_code for answer in await asyncio.gather(first, *others)]

    assert caller.run(main) == [200] * 4
    assert max(caller.service.times_of(SEARCH)) < 2
    assert min(at for at, path in caller.service.sent[1:] if path != SEARCH) == pytest.approx(300, abs=1.1)


@pytest.mark.parametrize("size", [0, 100_000], ids=["short", "long"])
def test_a_chunked_body(size: int) -> None:
    """It is read as far as limits may stand in it, and the caller gets all of it."""
    text = json.dumps({"message": "You have exceeded a secondary rate limit.", "more": "x" * size}).encode()

    async def parts() -> Any:
        for first in range(0, len(text), 1000):
            yield text[first : first + 1000]

    def answer(request: httpx.Request) -> httpx.Response:
        headers = {"x-github-request-id": "1", "content-type": "application/json"}
        return httpx.Response(403, headers=headers, content=parts())

    async def main() -> tuple[bytes, float]:
        transport = AdaptiveTransport(httpx.MockTransport(answer), profile="github", retries=0)
        async with httpx.AsyncClient(transport=transport, base_url="http://api.example") as client:
            content = (await client.get(REPO)).content
        return content, max([bucket.paused_for for bucket in transport.state()], default=0.0)

    content, paused_for = asyncio.run(main())
    assert content == text
    assert (paused_for > 50.0) == (not size)


@pytest.mark.parametrize(("encoding", "encode"), [("identity", bytes), ("gzip", gzip.compress)])
def test_a_body_that_the_wrapped_transport_has_read(encoding: str, encode: Any) -> None:
    """It is read for limits, but its connection, which may serve another request by now, is not."""
    headers = {"x-github-request-id": "1", "content-type": "application/json", "content-encoding": encoding}

    class Stream(httpx.SyncByteStream):
        parts = iter([encode(b'{"message": "You have exceeded a secondary rate limit."}')])

        def __iter__(self) -> Any:
            yield next(self.parts)

    class Logs(httpx.BaseTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            response = httpx.Response(403, headers=headers, stream=Stream(), request=request)
            response.read()
            return response

    transport = AdaptiveTransport(Logs(), profile="github", retries=0)
    with httpx.Client(transport=transport) as client:
        assert b"secondary" in client.get(f"http://api.example{REPO}").content
    assert max(bucket.paused_for for bucket in transport.state()) > 50.0


def test_a_body_that_trickles() -> None:
    """It is passed on after a second, and the caller gets the rest as it comes."""
    clock, headers = SteppedClock(), {"content-type": "application/json"}

    async def parts() -> Any:
        for _ in range(100):
            yield b"[1]"
            await asyncio.sleep(0.4)

    async def main(started: float) -> tuple[float, bytes]:
        service = httpx.MockTransport(lambda _: httpx.Response(200, headers=headers, content=parts()))
        transport = AdaptiveTransport(service, profile="shopify", store=MemoryStore(clock=clock))
        async with httpx.AsyncClient(transport=transport) as client, client.stream("GET", "http://a.example") as answer:
            return clock.now - started, await answer.aread()

    assert clock.run(main(clock.now)) == (pytest.approx(1.2), b"[1]" * 100)


def test_a_refusal_whose_body_breaks_off() -> None:
    """Its headers count: it is sent again after the pause. Without a retry, the caller gets the error."""
    headers = {"retry-after": "0.01", "content-type": "application/json"}
    sent: list[httpx.Request] = []

    async def broken() -> Any:
        yield b"{"
        raise httpx.ReadError("gone")

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return httpx.Response(429, headers=headers, content=broken()) if len(sent) % 2 else httpx.Response(200)

    async def get(retries: int) -> int:
        transport = AdaptiveTransport(httpx.MockTransport(answer), retries=retries)
        async with httpx.AsyncClient(transport=transport) as client:
            return (await client.get("http://api.example")).status_code

    assert asyncio.run(get(1)) == 200
    with pytest.raises(httpx.ReadError, match="gone"):
        asyncio.run(get(0))


@pytest.mark.parametrize("is_async", [False, True])
def test_an_answer_whose_body_breaks_off_is_still_one(is_async: bool) -> None:
    """A caller that streams it gets its status, what has come of its body, and then the error."""

    class Broken(httpx.SyncByteStream, httpx.AsyncByteStream):
        def __iter__(self) -> Any:
            yield b"{"
            raise httpx.ReadError("gone")

        async def __aiter__(self) -> Any:
            for part in self:
                yield part

    headers, got = {"content-type": "application/json"}, list[Any]()
    service = httpx.MockTransport(lambda _: httpx.Response(404, headers=headers, stream=Broken()))

    async def stream() -> None:
        client = httpx.AsyncClient(transport=AdaptiveTransport(service))
        async with client, client.stream("GET", "http://api.example") as answer:
            got.append(answer.status_code)
            parts = answer.aiter_raw()
            got.append(await anext(parts))
            await anext(parts)

    def stream_in_thread() -> None:
        client = httpx.Client(transport=AdaptiveTransport(service))
        with client, client.stream("GET", "http://api.example") as answer:
            got.append(answer.status_code)
            parts = answer.iter_raw()
            got.append(next(parts))
            next(parts)

    with pytest.raises(httpx.ReadError, match="gone"):
        asyncio.run(stream()) if is_async else stream_in_thread()
    assert got == [404, b"{"]


@pytest.mark.parametrize("kind", ["application/x-ndjson", "application/stream+json"])
def test_nobody_waits_for_the_end_of_a_stream(kind: str) -> None:
    """The caller reads its lines as they come."""

    async def lines() -> Any:
        yield b"{}\n"
        await asyncio.sleep(60)

    async def main() -> str:
        service = httpx.MockTransport(lambda _: httpx.Response(200, headers={"content-type": kind}, content=lines()))
        client = httpx.AsyncClient(transport=AdaptiveTransport(service, profile="github"))
        async with asyncio.timeout(30), client, client.stream("GET", "http://api.example") as answer:
            return await anext(answer.aiter_lines())

    assert asyncio.run(main()) == "{}"


def test_a_200_that_is_a_refusal() -> None:
    """GraphQL of GitHub says it in the body, which the caller can still read."""
    body = {"errors": [{"type": "RATE_LIMITED"}]}
    headers = {**github(0, 1_800_000_010, "graphql"), "date": "Fri, 15 Jan 2027 08:00:00 GMT"}
    caller = Caller(lambda path, number: (200, headers, body), profile="github", retries=0)

    async def main(client: httpx.AsyncClient) -> Any:
        return [(await client.get("/graphql")).json(), (await client.get("/graphql")).json()]

    assert caller.run(main) == [body, body]
    assert caller.service.times == [0.0, 10.1]


@pytest.mark.parametrize("status", [429, 503])
def test_a_plain_retry_after_stops_the_host(status: int) -> None:
    """It names nothing, so nothing of this server goes before; other servers go on."""
    caller = Caller(lambda path, number: (status, {"retry-after": "5"}) if number == 3 else 200, profile="auto")

    async def main(client: httpx.AsyncClient) -> None:
        for path in ("/a", "/b", "/c", "http://other.example/"):
            await client.get(path)

    caller.run(main)
    assert caller.service.times == [0.0, 0.1, 0.2, 5.3, 5.4]


def test_an_api_that_says_nothing_is_not_held_up() -> None:
    """After the first answer, all go at once."""
    caller = Caller(lambda path, number: 200, profile="auto")
    assert caller.get(*["/a"] * 50) == [200] * 50
    assert caller.service.times == [0.0] + [0.1] * 49


def test_refusals_without_a_time_double_the_pause() -> None:
    """1, 2, 4 seconds and so on, until an answer is none."""
    caller = Caller(lambda path, number: 429 if number < 5 else 200, profile="auto", retries=9, latency=0.0)
    assert caller.get("/a") == [200]
    assert caller.service.times == [0.0, 1.0, 3.0, 7.0, 15.0]


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"profile": "dicsord"}, ConfigurationError, r"auto, ietf, discord.*not 'dicsord': profile=\"auto\""),
        ({"store": MemoryStore}, ConfigurationError, r"MemoryStore lacks its call: store=MemoryStore\(\)"),
        ({"quota": "10 a second"}, QuotaError, "10 a second"),
        ({"retries": -1}, ConfigurationError, "-1"),
        ({"max_delay": -1}, ConfigurationError, "-1"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], error: type[Exception], text: str) -> None:
    """When the transport is made, by their values."""
    with pytest.raises(error, match=text):
        AdaptiveTransport(httpx.MockTransport(lambda _: httpx.Response(200)), **options)


def test_a_refusal_that_no_wait_ends() -> None:
    """The caller gets it at once, and nobody waits because of it."""
    body = {"error": {"type": "insufficient_quota", "code": "insufficient_quota"}}
    caller = Caller(lambda path, number: (429, {"openai-version": "2020-10-01"}, body), profile="openai")
    assert caller.get("/v1/responses", "/v1/responses") == [429, 429]
    assert caller.service.times == [0.0, 0.1]


def test_a_daily_limit_that_is_used_up_holds_up_nobody_who_has_less_time() -> None:
    """They are told as soon as an answer says so; and a second of quiet is no sign that there is more."""
    headers = {"x-ratelimit-limit": "5", "x-ratelimit-remaining": "4", "x-ratelimit-reset": "86400"}
    caller = Caller(lambda path, number: (200, headers), profile="auto", latency=2.0, max_delay=60)
    outcomes = caller.get(*["/a"] * 8)
    assert (outcomes[:5], [type(each) for each in outcomes[5:]]) == ([200] * 5, [PaceTimeout] * 3)
    assert (caller.service.times, caller.clock.now - caller.service.started) == ([0.0, *[2.0] * 4], 4.0)


def test_each_endpoint_of_x_has_its_own_bucket() -> None:
    """Although their numbers are the same."""
    left = {path: itertools.count(14, -1) for path in ("/2/tweets", "/2/users")}

    def script(path: str, number: int) -> Any:
        return 200, {"x-rate-limit-limit": "15", "x-rate-limit-remaining": str(next(left[path]))}

    assert Caller(script, profile="x", max_delay=5).get(*[*left] * 15) == [200] * 30


@pytest.mark.parametrize(
    ("latency", "callers", "limit", "cost", "part"),
    [((0.1, 0.1), 300, 60_000, 130, 0.95), ((0.5, 12.0), 300, 60_000, 130, 0.8), ((1.0, 1.0), 20, 10_000, 6_000, 0.9)],
    ids=["in order", "in any order", "much"],
)
def test_reported_tokens_are_obeyed(
    latency: tuple[float, float], callers: int, limit: int, cost: int, part: float
) -> None:
    """A request takes as many as answers have shown, and waits until there are that many."""
    fleet, rate, left, refused = Fleet(1, latency), limit / 60, float(limit), 0
    started = at = fleet.clock.now

    def answer(path: str) -> Any:
        nonlocal left, at, refused
        left, at = min(left + (fleet.clock.now - at) * rate, limit), fleet.clock.now
        is_served = left >= cost
        left, refused = left - cost * is_served, refused + (not is_served)
        headers = {"x-ratelimit-limit-tokens": str(limit), "x-ratelimit-remaining-tokens": f"{left:.0f}"}
        headers["x-ratelimit-reset-tokens"] = f"{(limit - left) / rate:.3f}s"
        wait_ms = (cost - left) / rate * 1e3
        return (200, headers, {}) if is_served else (429, {**headers, "retry-after-ms": f"{wait_ms:.0f}"}, {})

    fleet.run(answer, 1, callers, 60.0, profile="openai", retries=5)
    assert fleet.statuses[200] * cost >= part * (limit + rate * (fleet.clock.now - started))
    assert refused <= 4


def test_queries_of_shopify_wait_for_what_they_may_cost() -> None:
    """It refuses those that request more points than are left, and takes those that they have cost."""
    left, at, refused = 1_000.0, 0.0, 0

    def script(path: str, number: int) -> Any:
        nonlocal left, at, refused
        now = caller.clock.now - caller.service.started
        left, at = min(left + (now - at) * 50, 1_000), now
        is_served = left >= 100
        left, refused = left - 12 * is_served, refused + (not is_served)
        throttle = {"maximumAvailable": 1000, "currentlyAvailable": int(left), "restoreRate": 50}
        cost = {"requestedQueryCost": 100, "actualQueryCost": 12 if is_served else None, "throttleStatus": throttle}
        errors = {} if is_served else {"errors": [{"extensions": {"code": "THROTTLED"}}]}
        return 200, {}, {**errors, "extensions": {"cost": cost}}

    caller = Caller(script, profile="shopify")
    assert caller.get(*["/graphql"] * 200) == [200] * 200
    assert refused == 0
