"""Event loops that are closed while requests of an adaptive transport wait on them, or are under way."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from asgi_ratelimit import AdaptiveTransport
from tests.support.closed_loops import LONG, Loop, in_thread, until

pytestmark = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.usefixtures("unpublished"),  # a loop that is closed in the iteration that publishes never begins it
]

HEADERS = {"ratelimit-limit": "100", "ratelimit-remaining": "90", "ratelimit-reset": "1"}


class Service(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """A service that answers its first request only when ``answers`` is set."""

    def __init__(self) -> None:
        self.answers = False

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers=HEADERS, request=request)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if not self.answers:
            await asyncio.get_running_loop().create_future()
        return httpx.Response(200, headers=HEADERS, request=request)


@pytest.fixture
def service() -> Service:
    """What the transport wraps."""
    return Service()


@pytest.fixture
def closing() -> Iterator[Loop]:
    """The event loop that is closed."""
    loop = Loop()
    yield loop
    loop.close()


@pytest.fixture(params=[None, "20/s burst 1"], ids=["no quota", "a quota"])
def transport(service: Service, request: Any) -> Iterator[AdaptiveTransport]:
    """The transport under test."""
    transport = AdaptiveTransport(service, quota=request.param)
    yield transport
    transport.close()


def get() -> httpx.Request:
    """A request of the one route."""
    return httpx.Request("GET", "https://api.test/items")


def counted(transport: AdaptiveTransport) -> int:
    """How many requests wait, or are under way."""
    return sum(bucket.waiting + bucket.under_way for bucket in transport.state())


def test_requests_that_already_wait_go_on(service: Service, transport: AdaptiveTransport, closing: Loop) -> None:
    """The pioneer is lost, and some that wait before those of another loop and of a thread."""
    closing.begin(lambda: transport.handle_async_request(get()), 4)
    other, went = Loop(), []
    other.begin(lambda: transport.handle_async_request(get()), 2)
    thread = in_thread(lambda: went.append(transport.handle_request(get()).status_code))
    asyncio.run(until(lambda: sum(bucket.waiting for bucket in transport.state()) == 6))
    service.answers = True
    closing.close()
    assert other.finishes()
    other.loop.close()
    thread.join(LONG)
    assert went == [200]
    assert counted(transport) == 0


def test_a_new_request_takes_their_place(service: Service, transport: AdaptiveTransport, closing: Loop) -> None:
    """And nothing stays counted that was lost under way."""
    service.answers = True
    asyncio.run(transport.handle_async_request(get()))
    service.answers = False
    closing.begin(lambda: transport.handle_async_request(get()), 4)
    closing.close()
    service.answers = True
    asyncio.run(asyncio.wait_for(transport.handle_async_request(get()), LONG))
    assert counted(transport) == 0


def test_a_thread_takes_their_place(transport: AdaptiveTransport, closing: Loop) -> None:
    """The same for a transport that only threads go on to use."""
    closing.begin(lambda: transport.handle_async_request(get()), 4)
    closing.close()
    went: list[int] = []
    in_thread(lambda: went.append(transport.handle_request(get()).status_code)).join(LONG)
    assert went == [200]
    assert counted(transport) == 0
