"""Clients over an ``AdaptiveTransport`` on a stepped clock, and the service that they call, for tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import httpx

from asgi_ratelimit import AdaptiveTransport, MemoryStore
from asgi_ratelimit.profiles import discord
from asgi_ratelimit.testing import SteppedClock

HOST = "http://api.example"
CHANNEL = "/channels/1/messages"

# The headers of Discord, without its global limit.
BUCKETS = replace(discord, quota=None)

Script = Callable[[str, int], Any]


def bucket_headers(
    remaining: int, after: float | str, bucket: str = "abc", limit: int = 5, **more: str
) -> dict[str, str]:
    """The headers of Discord for one bucket."""
    headers = {"x-ratelimit-bucket": bucket, "x-ratelimit-limit": str(limit), "via": "1.1 google"}
    headers |= {"x-ratelimit-remaining": str(remaining), "x-ratelimit-reset-after": str(after)}
    return headers | {name.replace("_", "-"): text for name, text in more.items()}


class Service:
    """A service whose answer to the n-th request is ``script(path, n)``: a status, with headers, or an exception.

    Half of ``latency`` passes before it receives a request, and half after that.
    """

    def __init__(self, clock: SteppedClock, script: Script, latency: float = 0.0) -> None:
        self.clock, self.script, self.latency = clock, script, latency
        self.started = clock.now
        self.sent: list[tuple[float, str]] = []

    @property
    def times(self) -> list[float]:
        """When each request was sent, in seconds since the start."""
        return [at for at, _ in self.sent]

    def times_of(self, path: str) -> list[float]:
        """When each request to a path was sent."""
        return [at for at, sent in self.sent if sent == path]

    def handle_request(self, request: Any) -> httpx.Response:
        """Answer."""
        self.sent.append((round(self.clock.now - self.started, 3), request.url.path))
        return self._response(self.script(request.url.path, len(self.sent)), request)

    async def handle_async_request(self, request: Any) -> httpx.Response:
        """Answer."""
        self.sent.append((round(self.clock.now - self.started, 3), request.url.path))
        number = len(self.sent)
        await asyncio.sleep(self.latency / 2)
        answer = self.script(request.url.path, number)
        await asyncio.sleep(self.latency / 2)
        return self._response(answer, request)

    def _response(self, answer: Any, request: Any) -> httpx.Response:
        if isinstance(answer, Exception):
            raise answer
        status, headers, *body = answer if isinstance(answer, tuple) else (answer, {})
        return httpx.Response(status, headers=headers, json=body[0] if body else None, request=request)

    def close(self) -> None: ...

    async def aclose(self) -> None: ...

    def __enter__(self) -> None: ...

    async def __aenter__(self) -> None: ...


class Caller:
    """A client over one adaptive transport to one service, on a clock that moves with what it waits for."""

    store_on: Callable[[SteppedClock], Any] = staticmethod(lambda clock: MemoryStore(clock=clock))

    def __init__(self, script: Script, *, latency: float = 0.1, profile: Any = BUCKETS, **options: Any) -> None:
        self.clock = SteppedClock()
        self.service = Service(self.clock, script, latency)
        store = options.pop("store", None) or self.store_on(self.clock)
        self.transport = AdaptiveTransport(self.service, profile=profile, store=store, **options)

    def run(self, main: Callable[[httpx.AsyncClient], Coroutine[Any, Any, Any]]) -> Any:
        """Run a coroutine with the client."""

        async def with_client() -> Any:
            async with httpx.AsyncClient(transport=self.transport, base_url=HOST, timeout=None) as client:
                return await main(client)

        return self.clock.run(with_client())

    def get(self, *paths: str) -> list[Any]:
        """Send requests at the same time; returns the status of each, or its exception."""

        async def main(client: httpx.AsyncClient) -> list[Any]:
            answers = await asyncio.gather(*[client.get(path) for path in paths], return_exceptions=True)
            return [answer if isinstance(answer, BaseException) else answer.status_code for answer in answers]

        return self.run(main)
