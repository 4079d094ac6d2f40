"""``PacedTransport``: when requests go, what they are charged, and what it opens and closes."""

from __future__ import annotations

import asyncio
import gc
from typing import Any
from unittest.mock import AsyncMock

import httpx
import pytest

from asgi_ratelimit import MemoryStore, PacedTransport, PaceTimeout
from tests.support.paced_clients import OTHER, URL, Client


def test_requests_go_at_their_quota(client: Client) -> None:
    """Each waits for its slot, and its answer reports for how long."""
    answers = client.get(URL, URL, URL)
    assert client.service.times == [0.0, 0.1, 0.2]
    assert [answer.extensions["pace"] for answer in answers] == [
        {"waited": waited, "attempts": 1} for waited in (0.0, 0.1, 0.1)
    ]
    assert [answer.text for answer in answers] == ["hello"] * 3


@pytest.mark.parametrize(
    ("options", "times"),
    [
        ({"key": "all"}, [0.0, 0.1, 0.2]),
        ({"key": lambda request: request.method}, [0.0, 0.1, 0.2]),
        ({"key": lambda request: None}, [0.0, 0.0, 0.0]),
        ({"cost": 2}, [0.0, 0.0, 0.2]),
        ({"cost": lambda request: 3 if request.url.host == "other.example" else 1, "key": "all"}, [0.0, 0.1, 0.4]),
        ({"quota": "10/s burst 2", "key": "all"}, [0.0, 0.0, 0.1]),
    ],
    ids=["fixed", "method", "none", "cost", "cost of request", "burst"],
)
def test_keys_and_costs(client: Client, options: dict[str, Any], times: list[float]) -> None:
    """They are fixed, or functions of the request; a request without a key is not paced."""
    client.get(URL, OTHER, URL, **options)
    assert client.service.times == times


def test_a_request_may_have_its_own_options(client: Client) -> None:
    """A cost, and a key."""
    costly = {"method": "GET", "url": URL, "extensions": {"pace": {"cost": 3}}}
    other = {"method": "GET", "url": URL, "extensions": {"pace": {"key": "other"}}}
    client.get(URL, costly, other, URL)
    assert client.service.times == [0.0, 0.1, 0.1, 0.4]


def test_a_request_that_cannot_go_in_time_is_not_sent(client: Client) -> None:
    """It raises at once, and nothing is booked."""
    hasty = {"method": "GET", "url": URL, "extensions": {"pace": {"max_delay": 0.05}}}
    with pytest.raises(PaceTimeout) as raised:
        client.get(URL, hasty)
    assert raised.value.decision.retry_after == pytest.approx(0.05)
    assert (client.service.times, client.clock.now) == ([0.0], 0.0)
    client.get(URL, max_delay=0.1)
    assert client.service.times == [0.0, 0.1]


@pytest.mark.parametrize("wrong", [{"costs": 3}, 5], ids=repr)
def test_unknown_options_of_a_request_raise(client: Client, wrong: Any) -> None:
    """The error quotes them, and shows valid ones."""
    with pytest.raises(ValueError, match=r'extensions={"pace": {"cost": 3') as raised:
        client.get({"method": "GET", "url": URL, "extensions": {"pace": wrong}})
    assert repr(wrong) in str(raised.value)
    assert client.service.requests == []


# The transport itself


class Inner:
    """A transport that records how it is opened and closed."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def handle_request(self, request: Any) -> None: ...

    async def handle_async_request(self, request: Any) -> None: ...

    def __enter__(self) -> None:
        self.events.append("enter")

    async def __aenter__(self) -> None:
        self.events.append("aenter")

    def close(self) -> None:
        self.events.append("close")

    async def aclose(self) -> None:
        self.events.append("aclose")


def test_the_wrapped_transport_is_opened_and_closed_with_it() -> None:
    """A store that was passed in is not closed."""
    inner, store = Inner(), MemoryStore()
    store.aclose = AsyncMock()  # type: ignore[method-assign]
    with PacedTransport(inner, "10/s", store=store):
        pass
    assert inner.events == ["enter", "close"]

    async def main() -> None:
        async with PacedTransport(inner, "10/s", store=store):
            pass
        async with PacedTransport(inner, "10/s"):
            pass

    asyncio.run(main())
    assert inner.events[2:] == ["aenter", "aclose"] * 2
    assert store.aclose.await_count == 0


def test_a_store_that_it_opened_is_closed_with_it(redis_url: str) -> None:
    """No connection stays open."""
    with PacedTransport(
        httpx.MockTransport(lambda request: httpx.Response(200)), "100/s", store=redis_url
    ) as transport:
        assert transport.handle_request(httpx.Request("GET", URL)).status_code == 200
    gc.collect()
