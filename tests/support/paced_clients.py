"""Clients of httpx and httpx2 over a ``PacedTransport``, and the service that they call, for tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

from asgi_ratelimit import MemoryStore, PacedTransport
from asgi_ratelimit.testing import SteppedClock

URL = "http://one.example/"
OTHER = "http://other.example/"


def streamed() -> Iterator[bytes]:
    """A body that comes in two parts."""
    yield b"hel"
    yield b"lo"


async def async_streamed() -> AsyncIterator[bytes]:
    """A body that comes in two parts."""
    yield b"hel"
    yield b"lo"


class Held:
    """A body that records whether it is closed."""

    closed = False

    def __aiter__(self) -> AsyncIterator[bytes]:
        return async_streamed()

    async def aclose(self) -> None:
        self.closed = True


@dataclass
class Service:
    """A service that records its requests, and sends the given answers in order, and then 200."""

    module: Any
    clock: SteppedClock
    answers: list[Any]
    body: Any = "hello"

    def __post_init__(self) -> None:
        self.requests: list[tuple[float, str]] = []
        self.bodies: list[bytes] = []

    @property
    def times(self) -> list[float]:
        """When each request came."""
        return [at for at, _ in self.requests]

    def __call__(self, request: Any) -> Any:
        self.requests.append((self.clock.now, request.url.path))
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
    """One kind of client over one paced transport, on a clock that is moved by hand."""

    def __init__(self, module: Any, with_async: bool) -> None:
        self.module, self.with_async = module, with_async
        self.clock = SteppedClock(0)
        self.store = MemoryStore(clock=self.clock)
        self.service = Service(module, self.clock, [])

    def transport(self, quota: Any = "10/s", **options: Any) -> PacedTransport:
        """A paced transport to the service."""
        inner = self.module.MockTransport(self.service)
        return PacedTransport(inner, quota, **{"store": self.store, **options})

    def get(self, *calls: Any, answers: Any = (), **options: Any) -> list[Any]:
        """Make requests one after the other, each a URL or the arguments of a request, and return the answers."""
        self.service.answers = list(answers)
        transport = options.pop("transport", None) or self.transport(**options)
        requests = [{"method": "GET", "url": call} if isinstance(call, str) else call for call in calls]
        if not self.with_async:
            with self.module.Client(transport=transport) as client:
                return [client.request(**request) for request in requests]

        async def main() -> list[Any]:
            async with self.module.AsyncClient(transport=transport) as client:
                return [await client.request(**request) for request in requests]

        return self.clock.run(main())
