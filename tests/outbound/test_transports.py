"""``PacedTransport`` in clients of httpx and httpx2, with ``async`` and without, on a clock that is stepped by hand."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import httpx2
import pytest
import redis

from asgi_ratelimit import (
    ConfigurationError,
    Limiter,
    MemoryStore,
    PacedTransport,
    PaceTimeout,
    QuotaError,
    RedisStore,
    TokenBucket,
)
from asgi_ratelimit.outbound.pauses import Pauses
from asgi_ratelimit.testing import SteppedClock
from asgi_ratelimit.waiting import background_loop, run_sync

URL = "http://one.example/"
OTHER = "http://other.example/"


@dataclass
class Service:
    """What answers: it notes when it was asked for what, and answers as it is told to, in turn, and then with 200."""

    module: Any
    clock: SteppedClock
    answers: list[Any]
    body: Any = "hello"

    def __post_init__(self) -> None:
        self.asked: list[tuple[float, str]] = []
        self.bodies: list[bytes] = []

    @property
    def times(self) -> list[float]:
        """When it was asked."""
        return [at for at, _ in self.asked]

    def __call__(self, request: Any) -> Any:
        self.asked.append((self.clock.now, request.url.path))
        self.bodies.append(getattr(request, "_content", b""))
        answer = self.answers.pop(0) if self.answers else 200
        if isinstance(answer, Exception):
            raise answer
        status, headers = answer if isinstance(answer, tuple) else (answer, {})
        if isinstance(self.body, str):
            return self.module.Response(status, headers=headers, content=self.body)
        return self.module.Response(status, headers=headers, **self._streamed(self.body()))

    def _streamed(self, body: Any) -> dict[str, Any]:
        return {"stream": body} if isinstance(body, Held) else {"content": body}


class Client:
    """One kind of client over one paced transport, in the time of a clock."""

    def __init__(self, module: Any, with_async: bool) -> None:
        self.module, self.with_async = module, with_async
        self.clock = SteppedClock(0)
        self.store = MemoryStore(clock=self.clock)
        self.service = Service(module, self.clock, [])

    def transport(self, quota: Any = "10/s", **options: Any) -> PacedTransport:
        """A paced transport to the service."""
        inner = self.module.MockTransport(self.service)
        return PacedTransport(inner, quota, **{"store": self.store, **options})

    def ask(self, *calls: Any, answers: Any = (), follow_redirects: bool = False, **options: Any) -> list[Any]:
        """The answers to calls, one after the other, each a URL, or the arguments of a request."""
        self.service.answers = list(answers)
        transport = options.pop("transport", None) or self.transport(**options)
        requests = [{"method": "GET", "url": call} if isinstance(call, str) else call for call in calls]
        if not self.with_async:
            with self.module.Client(transport=transport, follow_redirects=follow_redirects) as client:
                return [client.request(**request) for request in requests]

        async def main() -> list[Any]:
            async with self.module.AsyncClient(transport=transport, follow_redirects=follow_redirects) as client:
                return [await client.request(**request) for request in requests]

        return self.clock.run(main())


@pytest.fixture(params=[httpx, httpx2], ids=["httpx", "httpx2"])
def module(request: pytest.FixtureRequest) -> Any:
    """Each of the two."""
    return request.param


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def client(request: pytest.FixtureRequest, module: Any) -> Client:
    """Each kind of client."""
    return Client(module, request.param)


def test_requests_go_at_their_quota(client: Client) -> None:
    """Each waits for its slot, and its answer says how long."""
    answers = client.ask(URL, URL, URL)
    assert client.service.times == [0.0, 0.1, 0.2]
    assert [answer.extensions["pace"] for answer in answers] == [
        {"waited": waited, "attempts": 1} for waited in (0.0, 0.1, 0.1)
    ]
    assert [answer.text for answer in answers] == ["hello"] * 3


def test_each_host_has_its_own_budget(client: Client) -> None:
    """Unless a key says otherwise."""
    client.ask(URL, OTHER, URL, OTHER)
    assert client.service.times == [0.0, 0.0, 0.1, 0.1]


@pytest.mark.parametrize(
    ("options", "times"),
    [
        ({"key": "all"}, [0.0, 0.1, 0.2]),
        ({"key": lambda request: request.method}, [0.0, 0.1, 0.2]),
        ({"key": lambda request: None}, [0.0, 0.0, 0.0]),
        ({"cost": 2}, [0.0, 0.2, 0.2]),
        ({"cost": lambda request: 3 if request.url.host == "other.example" else 1, "key": "all"}, [0.0, 0.1, 0.4]),
        ({"quota": "10/s burst 2", "key": "all"}, [0.0, 0.0, 0.1]),
    ],
    ids=["fixed", "method", "none", "cost", "cost of request", "burst"],
)
def test_keys_and_costs(client: Client, options: dict[str, Any], times: list[float]) -> None:
    """Fixed, or worked out from the request; one without a key just goes."""
    client.ask(URL, OTHER, URL, **options)
    if options.get("cost") == 2:
        times = [0.0, 0.0, 0.2]
    assert client.service.times == times


def test_one_request_may_differ(client: Client) -> None:
    """In what it costs, and in whose budget it is."""
    costly = {"method": "GET", "url": URL, "extensions": {"pace": {"cost": 3}}}
    other = {"method": "GET", "url": URL, "extensions": {"pace": {"key": "other"}}}
    client.ask(URL, costly, other, URL)
    assert client.service.times == [0.0, 0.1, 0.1, 0.4]


def test_a_request_that_cannot_go_in_time_is_not_sent(client: Client) -> None:
    """It is said at once, and nothing is booked."""
    hasty = {"method": "GET", "url": URL, "extensions": {"pace": {"max_delay": 0.05}}}
    with pytest.raises(PaceTimeout) as raised:
        client.ask(URL, hasty)
    assert raised.value.decision.retry_after == pytest.approx(0.05)
    assert (client.service.times, client.clock.now) == ([0.0], 0.0)
    client.ask(URL, max_delay=0.1)
    assert client.service.times == [0.0, 0.1]


@pytest.mark.parametrize("wrong", [{"costs": 3}, 5], ids=repr)
def test_an_extension_that_is_not_understood_is_refused(client: Client, wrong: Any) -> None:
    """The error quotes it, and shows a right one."""
    with pytest.raises(ValueError, match=r'extensions={"pace": {"cost": 3') as raised:
        client.ask({"method": "GET", "url": URL, "extensions": {"pace": wrong}})
    assert repr(wrong) in str(raised.value)
    assert client.service.asked == []


def test_a_redirect_costs_one(client: Client) -> None:
    """Each hop is a request."""
    (answer,) = client.ask(URL, answers=[(302, {"location": "/there"})], follow_redirects=True)
    assert client.service.asked == [(0.0, "/"), (0.1, "/there")]
    assert answer.status_code == 200


def test_it_may_be_mounted(client: Client) -> None:
    """For some of the requests of a client."""
    inner = client.module.MockTransport(client.service)
    with client.module.Client(transport=inner, mounts={"all://one.example": client.transport()}) as mounted:
        for url in (OTHER, URL, OTHER, URL):
            mounted.get(url)
    assert client.service.times == [0.0, 0.0, 0.0, 0.1]


# Answers that ask to wait

LATER = (429, {"retry-after": "2"})


def test_a_refusal_pauses_its_key(client: Client) -> None:
    """It is the caller's answer, and whoever comes next waits as long as it says; other keys do not."""
    answers = client.ask(URL, OTHER, URL, URL, answers=[LATER])
    assert [answer.status_code for answer in answers] == [429, 200, 200, 200]
    assert client.service.times == [0.0, 0.0, 2.0, 2.1]


def test_a_pause_is_for_all_who_share_the_store(client: Client) -> None:
    """Another transport of that name has not seen the answer, and is told by the store."""
    client.ask(URL, answers=[LATER])
    client.ask(URL, URL)
    client.ask(URL, name="elsewhere")
    assert client.service.times == [0.0, 2.0, 2.1, 2.1]


def test_a_pause_is_kept_in_redis(redis_url: str) -> None:
    """Another process would see it there, and it is gone by itself."""
    stores = [RedisStore(redis_url, timeout=30, on_error="deny") for _ in range(2)]
    own, other = (Pauses(store, "outbound") for store in stores)
    run_sync(own.begin("one.example", 3600))
    assert 3590e6 < run_sync(other.left_us("one.example")) <= 3600e6
    assert run_sync(other.left_us("two.example")) == 0
    with redis.Redis.from_url(redis_url) as keys:
        (key,) = keys.keys()
        assert 0 < keys.pttl(key) <= 3_600_001
    for store in stores:
        background_loop.run(store.aclose())


def test_the_longest_of_several_pauses_holds(client: Client) -> None:
    """They do not add up, and a shorter one does not end a longer one."""
    pauses = Pauses(client.store, "outbound")
    for seconds in (4.0, 5.0, 3.0, 5.0):
        run_sync(pauses.begin("one.example", seconds))
        client.clock.advance(0.001)
    client.ask(URL)
    assert client.service.times == [5.003]


def test_a_refused_request_is_sent_again(client: Client) -> None:
    """After the pause, as often as it is told, and each time costs one."""
    (answer,) = client.ask(URL, answers=[LATER, (503, {"retry-after-ms": "300"})], retries=2)
    assert client.service.times == [0.0, 2.0, 2.3]
    assert answer.status_code == 200
    assert answer.extensions["pace"] == {"waited": 2.3, "attempts": 3}


def test_without_a_word_of_when_it_backs_off(client: Client) -> None:
    """Twice as long each time, and only itself; the last answer is the caller's."""
    (answer,) = client.ask(URL, answers=[503, 429, 503, 503], retries=3)
    assert client.service.times == [0.0, 0.5, 1.5, 3.5]
    assert answer.status_code == 503


def test_it_does_not_wait_longer_than_it_may(client: Client) -> None:
    """Where the pause is longer than its patience, the refusal is its answer, and the next one is told at once."""
    (answer,) = client.ask(URL, answers=[LATER], retries=2, max_delay=1.0)
    assert answer.status_code == 429
    with pytest.raises(PaceTimeout):
        client.ask(URL, max_delay=1.0)
    assert client.service.times == [0.0]


def test_other_failures_are_not_sent_again(client: Client) -> None:
    """They say nothing of a limit."""
    assert [answer.status_code for answer in client.ask(URL, answers=[500], retries=2)] == [500]


@pytest.mark.parametrize(
    "body", [{"content": b"body"}, {"data": {"a": "b"}}, {"json": {"a": 1}}, {"files": {"f": b"body"}}], ids=repr
)
def test_bodies_that_are_at_hand_are_sent_again(client: Client, body: dict[str, Any]) -> None:
    """All of it, each time."""
    (answer,) = client.ask({"method": "POST", "url": URL, **body}, answers=[LATER], retries=1)
    assert answer.status_code == 200
    assert client.service.bodies[0] == client.service.bodies[1] != b""


class Unread:
    """A transport that leaves bodies as they are, where a mock reads them."""

    def __init__(self, service: Service) -> None:
        self.handle_request = service

    async def handle_async_request(self, request: Any) -> Any:
        return self.handle_request(request)

    def __enter__(self) -> None: ...

    async def __aenter__(self) -> None: ...

    def close(self) -> None: ...

    async def aclose(self) -> None: ...


def test_a_body_that_can_be_read_once_is_sent_once(client: Client) -> None:
    """The refusal is the caller's answer."""

    def parts() -> Any:
        yield b"once"

    async def async_parts() -> Any:
        yield b"once"

    content = async_parts() if client.with_async else parts()
    transport = PacedTransport(Unread(client.service), "10/s", store=client.store, retries=1)
    (answer,) = client.ask({"method": "POST", "url": URL, "content": content}, answers=[LATER], transport=transport)
    assert (answer.status_code, client.service.times) == (429, [0.0])


# Under way


def streamed() -> Iterator[bytes]:
    """A body that comes in two parts."""
    yield b"hel"
    yield b"lo"


async def async_streamed() -> AsyncIterator[bytes]:
    """The same."""
    yield b"hel"
    yield b"lo"


def test_a_request_is_under_way_until_its_body_is_closed(module: Any) -> None:
    """Of one key, no more than so many are."""
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


def test_without_async_as_well(module: Any) -> None:
    """One who cannot wait is told so while the body is open."""
    client = Client(module, False)
    client.service.body = streamed
    transport = client.transport("100/s", concurrency=1, max_delay=0.5)
    with module.Client(transport=transport) as paced:
        with paced.stream("GET", URL), pytest.raises(PaceTimeout):
            paced.get(URL)
        assert paced.get(URL).status_code == 200
        forgotten = paced.send(paced.build_request("GET", URL), stream=True)
        del forgotten
        gc.collect()
        assert paced.get(URL).status_code == 200
    assert len(transport._way._gates) == 0


def test_an_answer_whose_body_is_at_hand_is_not_under_way(client: Client) -> None:
    """Nobody closes it once more: it may come from a cache inside."""
    client.ask(URL, URL, URL, concurrency=1)
    assert client.service.times == [0.0, 0.1, 0.2]


def test_what_fails_is_no_longer_under_way(client: Client) -> None:
    """Neither a request that could not be sent, nor one that was cancelled."""
    transport = client.transport(concurrency=1)
    with pytest.raises(client.module.ConnectError):
        client.ask(URL, answers=[client.module.ConnectError("refused")], transport=transport)
    client.ask(URL, transport=transport)
    assert client.service.times == [0.0, 0.1]
    assert len(transport._way._gates) == 0


def test_a_cancelled_request_gives_its_slot_back(module: Any) -> None:
    """And its place at the gate."""
    client = Client(module, True)
    transport = client.transport(concurrency=3)

    async def main() -> None:
        async with module.AsyncClient(transport=transport) as paced:
            requests = [asyncio.ensure_future(paced.get(URL)) for _ in range(5)]
            await asyncio.sleep(0.05)
            for number in (1, 3):
                requests[number].cancel()
            await asyncio.gather(*requests, return_exceptions=True)

    client.clock.run(main())
    assert client.service.times == [0.0, 0.1, 0.2]
    assert len(transport._way._gates) == 0


class Held:
    """A body that says whether it was closed."""

    closed = False

    def __aiter__(self) -> AsyncIterator[bytes]:
        return async_streamed()

    async def aclose(self) -> None:
        self.closed = True


class OutOfReach(MemoryStore):
    """A store that is told of a pause, and never answers."""

    async def take(self, takes: Any) -> Any:
        if takes[0].best_effort:
            await asyncio.sleep(3600)
        return await super().take(takes)


def test_an_answer_is_closed_whatever_happens_before_it_is_there(module: Any) -> None:
    """Its request is cancelled while the store is told of the pause; its connection must not be lost."""
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


# What it is made of


class Inner:
    """A transport that says whether it was opened and closed."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def __enter__(self) -> None:
        self.seen.append("enter")

    async def __aenter__(self) -> None:
        self.seen.append("aenter")

    def close(self) -> None:
        self.seen.append("close")

    async def aclose(self) -> None:
        self.seen.append("aclose")


class Closable(MemoryStore):
    """A store that says whether it was closed."""

    closed = 0

    async def aclose(self) -> None:
        self.closed += 1


def test_what_it_wraps_is_opened_and_closed_with_it() -> None:
    """A store that it was given is left alone."""
    inner, store = Inner(), Closable()
    with PacedTransport(inner, "10/s", store=store):
        pass
    assert inner.seen == ["enter", "close"]

    async def main() -> None:
        async with PacedTransport(inner, "10/s", store=store):
            pass
        async with PacedTransport(inner, "10/s"):
            pass

    asyncio.run(main())
    assert inner.seen[2:] == ["aenter", "aclose"] * 2
    assert store.closed == 0


def test_a_store_that_was_opened_here_is_closed_here(redis_url: str) -> None:
    """With no warning of a connection that was left open."""
    with PacedTransport(
        httpx.MockTransport(lambda request: httpx.Response(200)), "100/s", store=redis_url
    ) as transport:
        assert transport.handle_request(httpx.Request("GET", URL)).status_code == 200
    gc.collect()


def test_it_shows_what_it_is() -> None:
    """For logs."""
    assert "PacedTransport(" in repr(PacedTransport(httpx.HTTPTransport(), "10/s"))


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"quota": "10/fortnight"}, QuotaError),
        ({"max_delay": -1}, ValueError),
        ({"concurrency": 0}, ConfigurationError),
        ({"concurrency": True}, ConfigurationError),
        ({"retries": -1}, ConfigurationError),
        ({"retries": 1.5}, ConfigurationError),
        ({"name": ""}, ConfigurationError),
        ({"store": "nowhere://"}, ConfigurationError),
    ],
    ids=repr,
)
def test_what_cannot_be_is_said_at_once(wrong: dict[str, Any], error: type[Exception]) -> None:
    """Not at the first request."""
    with pytest.raises(error):
        PacedTransport(Inner(), **{"quota": "10/s", **wrong})


def test_the_budget_is_shared_by_name(client: Client) -> None:
    """With a limiter, and with any other part of the way out."""
    limiter = Limiter(TokenBucket(10, burst=1), store=client.store, name="api")
    assert client.clock.run(limiter.rate_limit("one.example")).allowed
    client.ask(URL, name="api")
    assert client.service.times == [0.1]
