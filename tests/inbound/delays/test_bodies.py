"""A ``receive`` that is under way while a request waits is never cancelled before the request ends."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from fastapi import Depends, FastAPI
from hypothesis import given
from hypothesis import strategies as st
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from asgi_ratelimit import MemoryStore, RateLimit, RateLimitMiddleware
from asgi_ratelimit.testing import SteppedClock
from tests.support.asgi import BODY, START, http

# Seconds after which a request that waits in these tests has its slot.
SLOT = 1.0


class Client:
    """A server's side of a request whose body comes in parts, at times, each some steps of the loop later."""

    def __init__(self, *parts: bytes, gaps: Any = (), steps: int = 0) -> None:
        self.messages: asyncio.Queue[Message] = asyncio.Queue()
        self.parts, self.gaps, self.steps = parts, gaps, steps
        self.sent: list[Message] = []

    async def feed(self) -> None:
        """Send the body, part by part."""
        for number, part in enumerate(self.parts, 1):
            if number > 1:
                await asyncio.sleep(self.gaps[number - 2])
            for _ in range(self.steps):
                await asyncio.sleep(0)
            self.messages.put_nowait({"type": "http.request", "body": part, "more_body": number < len(self.parts)})

    async def send(self, message: Message) -> None:
        self.sent.append(message)

    async def visit(self, app: ASGIApp) -> bytes:
        """Send the request; what the app answers."""
        feeding = asyncio.ensure_future(self.feed())
        scope = http(method="POST", headers=[(b"content-type", b"text/plain")])
        await asyncio.wait_for(app(scope, self.messages.get, self.send), 60.0)
        await feeding
        return b"".join(message.get("body", b"") for message in self.sent)


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with the body of the request."""
    await Response(await Request(scope, receive).body())(scope, receive, send)


async def passing(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
    return await call_next(request)


def behind_middleware(clock: SteppedClock) -> ASGIApp:
    """A limit with another middleware around it, which passes on what it receives."""
    limited = RateLimitMiddleware(echo, "1/s burst 1", max_delay=5.0, store=MemoryStore(clock=clock))
    return BaseHTTPMiddleware(limited, passing)


def behind_dependency(clock: SteppedClock) -> ASGIApp:
    """A limit that is a dependency, with another middleware around the app."""
    app = FastAPI()
    limit = RateLimit("1/s burst 1", max_delay=5.0, name="body", store=MemoryStore(clock=clock))

    @app.post("/", dependencies=[Depends(limit)])
    async def body(request: Request) -> Response:
        return Response(await request.body())

    app.add_middleware(BaseHTTPMiddleware, dispatch=passing)
    return app


KINDS = [behind_middleware, behind_dependency]


async def second_visit(app: ASGIApp, client: Client) -> bytes:
    """What the app answers to a client that has to wait."""
    await Client(b"").visit(app)
    return await client.visit(app)


@given(
    st.sampled_from(KINDS), st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=1, max_size=8), st.integers(0, 6)
)
def test_a_body_never_loses_a_part(kind: Callable[[SteppedClock], ASGIApp], gaps: list[float], steps: int) -> None:
    """Whenever its parts come."""
    clock, parts = SteppedClock(), [bytes([65 + number]) for number in range(len(gaps) + 1)]
    assert clock.run(second_visit(kind(clock), Client(*parts, gaps=gaps, steps=steps))) == b"".join(parts)


@pytest.fixture
def complaints() -> Iterator[Callable[[], list[str]]]:
    """What the running event loop complains of, such as a task whose error nobody has seen."""
    seen: list[str] = []

    def listen() -> list[str]:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: seen.append(context["message"]))
        return seen

    yield listen
    gc.collect()
    assert seen == []


async def silent(scope: Scope, receive: Receive, send: Send) -> None:
    """An app that receives nothing."""
    await send(START)
    await send(BODY)


async def fail(scope: Scope, receive: Receive, send: Send) -> None:
    raise LookupError


class Broken(Client):
    """A client whose connection breaks while its request waits."""

    async def visit(self, app: ASGIApp) -> bytes:
        async def receive() -> Message:
            await asyncio.sleep(SLOT / 2)
            raise ConnectionError

        await app(http(), receive, self.send)
        return b""


async def tasks_after(visit: Callable[[], Awaitable[object]], cancels: int = 0) -> set[str]:
    """What runs after a request that has waited for a second, or has been cancelled before."""
    before = asyncio.all_tasks()
    request = asyncio.ensure_future(visit())
    await asyncio.sleep(0.25 if cancels else 2 * SLOT)
    for _ in range(cancels):
        request.cancel()
        await asyncio.sleep(0)
    await asyncio.wait((request,))
    with suppress(asyncio.CancelledError, LookupError):
        request.result()
    for _ in range(10):
        await asyncio.sleep(0)
    return {repr(task) for task in asyncio.all_tasks() - before}


@pytest.mark.parametrize("cancels", [0, 1, 2, 3])
@pytest.mark.parametrize("client", [Client, Broken])
@pytest.mark.parametrize("app", [silent, fail])
def test_what_is_under_way_ends_with_the_request(
    app: ASGIApp, client: type[Client], cancels: int, complaints: Callable[[], list[str]]
) -> None:
    """No task is left of a request that receives nothing, fails, or is cancelled; and nobody hears of that."""
    clock = SteppedClock()
    limited = RateLimitMiddleware(app, "1/s burst 1", max_delay=5.0, store=MemoryStore(clock=clock))

    async def visit() -> None:
        complaints()
        with suppress(LookupError):
            await limited(http(), Client().messages.get, Client().send)
        assert await tasks_after(lambda: client().visit(limited), cancels) == set()

    clock.run(visit())


def test_an_error_of_receive_reaches_the_app_in_its_place() -> None:
    """As that of a middleware further out that allows bodies of some size only: it may say so just once."""

    class TooLarge(Exception):
        pass

    clock, parts, received = SteppedClock(), [b"one", b"two", b"", b"three"], []

    async def receive() -> Message:
        part = parts.pop(0)
        if not part:
            raise TooLarge
        return {"type": "http.request", "body": part, "more_body": True}

    async def read(scope: Scope, receive: Receive, send: Send) -> None:
        received.extend([(await receive())["body"] for _ in range(2)])
        with pytest.raises(TooLarge):
            await receive()
        received.append((await receive())["body"])
        await silent(scope, receive, send)

    limited = RateLimitMiddleware(silent, "1/s burst 1", max_delay=5.0, store=MemoryStore(clock=clock))

    async def visit() -> None:
        await limited(http(), receive, Client().send)
        limited.app = read
        await limited(http(), receive, Client().send)

    clock.run(visit())
    assert received == [b"one", b"two", b"three"]
