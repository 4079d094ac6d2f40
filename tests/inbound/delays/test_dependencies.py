"""Dependencies of FastAPI that wait for their slots, with and without a middleware around the app."""

import asyncio
from typing import Annotated, Any

import pytest
from fastapi import Depends, FastAPI, Request
from starlette.types import Message

from asgi_ratelimit import Decision, Limiter, MemoryStore, RateLimit
from asgi_ratelimit.keys import header
from asgi_ratelimit.testing import SteppedClock
from tests.support.asgi import http
from tests.support.visitors import Site, Visitor

BODY: list[Message] = [
    {"type": "http.request", "body": b'{"a": ', "more_body": True},
    {"type": "http.request", "body": b"1}", "more_body": False},
]


class Api(Site):
    """A FastAPI app with a limit of 1/s for each client on all of its routes, with or without the middleware."""

    def __init__(self, *, is_inside: bool = False, own_delay: float = 2.0, **options: Any) -> None:
        super().__init__(**options)
        self.bodies: list[object] = []
        limit = RateLimit("1/s burst 1", max_delay=own_delay, name="api", key=header("x-client"), store=self.store)
        Limited = Annotated[Decision, Depends(limit)]  # noqa: N806  # a type
        app = FastAPI()

        @app.get("/")
        async def delay(request: Request, decision: Limited) -> float:
            request.scope["visitor"].entered = self.now
            return decision.delay

        @app.post("/raw")
        async def raw(request: Request, decision: Limited) -> None:
            request.scope["visitor"].entered = self.now
            self.bodies.append(await request.body())

        @app.post("/json")
        async def parsed(request: Request, body: dict[str, int], decision: Limited) -> None:
            request.scope["visitor"].entered = self.now
            self.bodies.append(body)

        self.middleware.app = app
        self.app = self.middleware if is_inside else app


def post(path: str, **more: Any) -> Visitor:
    """A request with a body in two parts."""
    headers = [(b"content-type", b"application/json")]
    return Visitor(path, incoming=list(BODY), headers_sent=headers, scope={"method": "POST"}, **more)


inside = pytest.mark.parametrize("is_inside", [True, False])


@inside
def test_a_dependency_waits_for_its_slot(is_inside: bool) -> None:
    """And refuses what is too far away; its decision and the answer say how long the request has waited."""
    first, second, third, fourth = [Visitor() for _ in range(4)]
    assert Api(is_inside=is_inside).run(first, second, third, fourth) == [0.0, 1.0, 2.0, None]
    assert [each.delay for each in (first, second, third, fourth)] == [None, "1.000", "2.000", None]
    assert [first.body, second.body] == [b"0.0", b"1.0"]
    assert [fourth.status, fourth.headers["retry-after"]] == [429, "1"]


@inside
@pytest.mark.parametrize("path", ["/raw", "/json"])
def test_the_endpoint_gets_the_whole_body(path: str, is_inside: bool) -> None:
    """Whether FastAPI has read it before the wait or the endpoint reads it afterwards."""
    api = Api(is_inside=is_inside)
    assert api.run(post(path), post(path)) == [0.0, 1.0]
    assert api.bodies == ([b'{"a": 1}'] * 2 if path == "/raw" else [{"a": 1}] * 2)


@inside
@pytest.mark.parametrize("path", ["/raw", "/json"])
def test_a_client_that_goes_gives_its_slot_back(path: str, is_inside: bool) -> None:
    """The endpoint never runs, and those behind it move up."""
    gone = post(path, leaves=0.5)
    assert Api(is_inside=is_inside).run(post(path), gone, post(path)) == [0.0, None, 1.0]


async def connected() -> Message:
    """The ``receive`` of a client that stays."""
    await asyncio.Event().wait()
    raise AssertionError


async def discard(message: Message) -> None: ...


def test_a_request_that_is_cancelled_while_it_waits_gets_everything_back() -> None:
    """What earlier dependencies have charged it, too."""
    clock = SteppedClock(0)
    store, app = MemoryStore(clock=clock), FastAPI()
    earlier = RateLimit("100/hour", name="earlier", store=store)
    waiting = RateLimit("1/s burst 1", max_delay=5.0, name="waiting", store=store)

    @app.get("/", dependencies=[Depends(earlier), Depends(waiting)])
    async def endpoint() -> None: ...

    async def main() -> int:
        requests = [asyncio.ensure_future(app(http(client=("203.0.113.7", 1)), connected, discard)) for _ in range(3)]
        await asyncio.sleep(0.25)
        for request in requests[1:]:
            request.cancel()
        await asyncio.gather(*requests, return_exceptions=True)
        return (await Limiter("100/hour", name="earlier", store=store).peek("203.0.113.7")).remaining

    assert clock.run(main()) == 99
