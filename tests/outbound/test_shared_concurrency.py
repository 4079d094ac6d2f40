"""``concurrency=`` over a shared store: at most so many requests of a key are under way, in all processes together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from asgi_ratelimit import PacedTransport, PaceTimeout, RedisStore
from asgi_ratelimit.decision import Charge, Take
from asgi_ratelimit.quotas import InFlight
from tests.support.redis_server import RedisServer

URL = "http://api.test/"


class Service:
    """A service for the transports of a test that counts the requests under way, and holds them until it may go on."""

    def __init__(self) -> None:
        self.under_way = self.most = self.served = 0

    async def handle(self, _request: httpx.Request) -> httpx.Response:
        """Answer a request after some turns of the loop."""
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        for _ in range(20):
            await asyncio.sleep(0)
        self.under_way -= 1
        self.served += 1
        return httpx.Response(200, content=self._body())

    async def _body(self) -> AsyncIterator[bytes]:
        yield b"ok"


def a_client(service: Service, store: RedisStore, **options: Any) -> httpx.AsyncClient:
    """A client as another process has it, but for the service."""
    transport = httpx.MockTransport(service.handle)
    return httpx.AsyncClient(transport=PacedTransport(transport, "10000/s burst 1000", store=store, **options))


@pytest.mark.anyio
async def test_processes_share_the_places(redis_server: RedisServer) -> None:
    """Four clients with a store each, as four processes have; all are served, and no place is lost."""
    service = Service()
    stores = [RedisStore(redis_server.url, prefix="shared places") for _ in range(4)]
    clients = [a_client(service, store, concurrency=3) for store in stores]
    for _ in range(2):
        answers = await asyncio.gather(*[client.get(URL) for client in clients * 10])
        assert {answer.status_code for answer in answers} == {200}
    assert (service.most, service.served) == (3, 80)
    await asyncio.gather(*[store.aclose() for store in stores])


def test_a_client_that_is_closed_has_given_its_places_back(redis_server: RedisServer) -> None:
    """Although the program ends then, and its store stays open."""
    service, place = Service(), InFlight(1, "concurrency")

    async def once() -> int:
        store, take = RedisStore(redis_server.url, prefix="closed"), Take((Charge(place, "api.test", 1, "closed"),))
        async with a_client(service, store, concurrency=1, name="closed") as client:
            await client.get(URL)
        left = (await store.peek(take)).remaining
        await store.aclose()
        return left

    assert asyncio.run(once()) == 1


@pytest.mark.anyio
async def test_a_place_that_another_process_holds_is_waited_for_up_to_max_delay(redis_server: RedisServer) -> None:
    """An answer whose body is open holds it."""
    service = Service()
    stores = [RedisStore(redis_server.url, prefix="a held place") for _ in range(2)]
    first, second = (a_client(service, store, concurrency=1, max_delay=0.0) for store in stores)
    async with first.stream("GET", URL) as answer:
        with pytest.raises(PaceTimeout, match="all 1 are held"):
            await second.get(URL)
        assert await answer.aread() == b"ok"
    patient = a_client(service, stores[1], concurrency=1, max_delay=30.0)
    assert (await patient.get(URL)).status_code == 200
    await asyncio.gather(*[store.aclose() for store in stores])
