"""What ``PacedTransport`` adds to the transport that it wraps, for a request that does not wait.

Wrapped and paced requests take turns, in short rounds,
and the best round of each counts, because other programs disturb the measurement.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import httpx

from asgi_ratelimit import Decision, MemoryStore, PacedTransport, Take
from asgi_ratelimit.stores import Decisions

ROUNDS, REQUESTS = 200, 50
OPEN = "10000000/s burst 10000000"
"""A quota at which no request waits."""


class Wrapped(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """A transport that answers at once."""

    def handle_request(self, _: httpx.Request) -> httpx.Response:
        return httpx.Response(200)

    async def handle_async_request(self, _: httpx.Request) -> httpx.Response:
        return httpx.Response(200)


class CountedStore(MemoryStore):
    """A store that counts how often it is asked."""

    trips = 0

    def take(self, takes: Sequence[Take]) -> Decisions:
        self.trips += 1
        return super().take(takes)

    async def peek(self, take: Take) -> Decision:
        self.trips += 1
        return await super().peek(take)


def trips(requests: int = 10) -> float:
    """How often the store is asked for each request."""
    store, request = CountedStore(), httpx.Request("GET", "http://one.example/")
    transport = PacedTransport(Wrapped(), OPEN, store=store)
    for _ in range(requests):
        transport.handle_request(request)
    return store.trips / requests


def added_without_async() -> float:
    """CPU time that the paced transport adds to a request, in microseconds."""
    request = httpx.Request("GET", "http://one.example/")

    def run(transport: Any) -> None:
        for _ in range(REQUESTS):
            transport.handle_request(request)

    wrapped, paced = Wrapped(), PacedTransport(Wrapped(), OPEN)
    return _difference(lambda: (_timed(run, wrapped), _timed(run, paced)))


def added_with_async() -> float:
    """The same on an event loop."""
    request = httpx.Request("GET", "http://one.example/")

    async def main(transport: Any) -> float:
        start = time.process_time()
        for _ in range(REQUESTS):
            await transport.handle_async_request(request)
        return (time.process_time() - start) / REQUESTS * 1e6

    wrapped, paced = Wrapped(), PacedTransport(Wrapped(), OPEN)
    with asyncio.Runner() as runner:
        return _difference(lambda: (runner.run(main(wrapped)), runner.run(main(paced))))


def _timed(run: Callable[[Any], None], transport: Any) -> float:
    start = time.process_time()
    run(transport)
    return (time.process_time() - start) / REQUESTS * 1e6


def _difference(both: Callable[[], tuple[float, float]]) -> float:
    rounds = [both() for _ in range(ROUNDS)]
    return min(paced for _, paced in rounds) - min(wrapped for wrapped, _ in rounds)


def table(_: Iterable[str] = ()) -> list[Sequence[str]]:
    """The figures as a table."""
    return [
        ("", "CPU µs more", "trips to the store"),
        ("---", "---:", "---:"),
        ("with `async`", f"{added_with_async():.1f}", f"{trips():.0f}"),
        ("without", f"{added_without_async():.1f}", f"{trips():.0f}"),
    ]
