"""A fleet on a stepped clock: adaptive transports over one store, each as in a process of its own, and their server."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import httpx

from asgi_ratelimit import AdaptiveTransport, MemoryStore
from asgi_ratelimit.testing import SteppedClock
from tests.support.adaptive_clients import BUCKETS
from tests.support.store_elsewhere import StoreElsewhere

Answer = Callable[[str], tuple[int, dict[str, str], Any]]


class Server:
    """A transport to a server: half of a random ``latency`` passes before it receives a request, half after that."""

    def __init__(self, answer: Answer, latency: tuple[float, float], seed: int = 1) -> None:
        self.answer = answer
        self._latency = latency
        self._random = random.Random(seed)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Answer."""
        await self._pass()
        status, headers, body = self.answer(request.url.path)
        await self._pass()
        return httpx.Response(status, headers={**headers, "via": "1.1 google"}, json=body, request=request)

    async def _pass(self) -> None:
        await asyncio.sleep(self._random.uniform(*self._latency) / 2)

    async def aclose(self) -> None: ...

    async def __aenter__(self) -> None: ...

    async def __aexit__(self, *_: object) -> None: ...


class Fleet:
    """Clients that share a store on one clock, ``processes`` of them; ``statuses`` counts their answers."""

    def __init__(self, processes: int = 4, latency: tuple[float, float] = (0.002, 0.06)) -> None:
        self.clock = SteppedClock()
        self.store = MemoryStore(clock=self.clock)
        self.latency = latency
        self.processes = processes
        self.statuses: Counter[int] = Counter()
        self.transports: list[AdaptiveTransport] = []

    def client(self, server: Server, **options: Any) -> httpx.AsyncClient:
        """The client of one process more."""
        transport = AdaptiveTransport(server, store=StoreElsewhere(self.store), **{"profile": BUCKETS, **options})
        self.transports.append(transport)
        return httpx.AsyncClient(transport=transport, base_url="http://api.example", timeout=None)

    def run(self, answer: Answer, channels: int, callers: int, seconds: float, *paths: str, **options: Any) -> None:
        """In each process, so many callers of each channel send requests until so many seconds are over.

        Instead of channels, each process may have a path of its own.
        """
        end = self.clock.now + seconds

        async def call(client: httpx.AsyncClient, path: str) -> None:
            while self.clock.now < end:
                self.statuses[(await client.get(path)).status_code] += 1

        async def main() -> None:
            clients = [self.client(Server(answer, self.latency, seed), **options) for seed in range(self.processes)]
            own = [[each] for each in paths] or [[f"/channels/{n}/messages" for n in range(channels)]] * self.processes
            places = [(client, path) for client, each in zip(clients, own) for path in each for _ in range(callers)]
            await asyncio.gather(*[call(*place) for place in places])

        self.clock.run(main())
