"""Apps that a real server runs for the tests of rules, dependencies and outcomes, over the store that STORE names."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

from fastapi import APIRouter, Depends, FastAPI, HTTPException, WebSocket
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocketDisconnect

from asgi_ratelimit import Decision, MemoryStore, RateLimit, RateLimitMiddleware, RedisStore, Rule, Store, limits
from asgi_ratelimit.keys import header

STORE = os.environ.get("STORE", "memory://")
PATIENT = 20.0
"""Seconds that a take may last: on a busy machine no take must fall back to this process's own memory."""


def a_store() -> Store:
    return MemoryStore() if STORE == "memory://" else RedisStore(STORE, timeout=PATIENT)


async def hello(request: Request) -> Response:
    return PlainTextResponse("hello")


def everybody(connection: HTTPConnection) -> str:
    return "all"


async def tier(connection: HTTPConnection) -> str:
    return "100/hour" if connection.headers.get("x-tier") == "pro" else "2/hour"


def broken(connection: HTTPConnection) -> str:
    raise LookupError("no such user")


async def sorry(connection: HTTPConnection, decision: Decision) -> Response:
    return JSONResponse({"sorry": connection.url.path, "wait": round(decision.retry_after)}, 429)


RULES = [
    Rule("/triple", "1000/hour", key=header("x-client"), name="address"),
    Rule("/triple", "500/hour", key=header("x-user"), name="user"),
    Rule("/triple", "100000/hour", key=everybody, name="all"),
    Rule("/tier", tier, key=header("x-client")),
    Rule("/cost", "10/hour", key=header("x-client"), cost=lambda connection: float(connection.query_params["n"])),
    Rule("/tried", "1/hour", key=header("x-client"), shadow=True),
    Rule("/broken", "1/hour", key=broken),
    Rule("/strict", broken, on_error="deny"),
    Rule("/one", "1/hour", key=header("x-client")),
]


def a_rules_app() -> Starlette:
    paths = ["/triple", "/tier", "/cost", "/tried", "/broken", "/strict", "/one"]
    return Starlette(
        routes=[Route(path, hello, methods=["GET", "POST"]) for path in paths],
        middleware=[
            Middleware(CORSMiddleware, allow_origins=["https://shop.example"], allow_methods=["*"]),
            Middleware(RateLimitMiddleware, rules=RULES, store=a_store(), headers="both", on_limited=sorry),
        ],
    )


rules_app = a_rules_app()


def a_dependency_app() -> FastAPI:
    """Limits next to routes, two routers deep, inside a middleware that has the store and the key."""
    app = FastAPI()
    app.add_middleware(RateLimitMiddleware, store=a_store(), key=header("x-client"))
    leaf = APIRouter(prefix="/leaf", dependencies=[Depends(RateLimit("3/hour", name="leaf"))])

    @leaf.get("/{number}", dependencies=[Depends(RateLimit("2/day", name="number"))])
    async def number(number: int) -> int:
        return number

    @leaf.get("/own/teapot")
    async def teapot() -> None:
        raise HTTPException(418)

    branch = APIRouter(prefix="/branch")
    branch.include_router(leaf)
    app.include_router(branch)

    @app.websocket("/ws", dependencies=[Depends(RateLimit("1/hour", name="sockets"))])
    async def talk(session: WebSocket) -> None:
        await session.accept()
        await session.send_text("hello")
        await session.close()

    return app


dependency_app = a_dependency_app()


async def login(request: Request) -> Response:
    return PlainTextResponse("", 200 if request.query_params["password"] == "right" else 401)


async def priced(request: Request) -> Response:
    return PlainTextResponse("ok", headers={"x-cost": request.query_params["cost"]})


async def endless(request: Request) -> Response:
    """Kilobytes, until nobody listens any more."""

    async def chunks() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 1000
            await asyncio.sleep(0)

    return StreamingResponse(chunks())


async def report(request: Request) -> Response:
    await limits(request).charge(float(request.query_params["pages"]))
    return PlainTextResponse("report")


def failures(status: int, headers: Headers) -> float:
    return 1 if status >= 400 else 0


def x_cost(status: int, headers: Headers) -> float | None:
    return float(headers["x-cost"]) if "x-cost" in headers else None


def kilobytes(status: int, headers: Headers, sent: int) -> float:
    return sent / 1000


def an_outcome_app() -> Starlette:
    endpoints = {"/login": login, "/priced": priced, "/endless": endless, "/kilobytes": hello, "/report": report}
    rules = [
        Rule("/login", "3/day", settle=failures),
        Rule("/priced", "100/day", settle=x_cost),
        Rule("/endless", "1000000/day", settle=kilobytes, name="kilobytes"),
        Rule("/kilobytes", "1000000/day", name="kilobytes"),
        Rule("/report", "10/day"),
    ]
    return Starlette(
        routes=[Route(path, endpoint) for path, endpoint in endpoints.items()],
        middleware=[Middleware(RateLimitMiddleware, rules=rules, store=a_store(), key=header("x-client"))],
    )


outcome_app = an_outcome_app()


async def echo(session: WebSocket) -> None:
    """Says back what it hears, and which it was."""
    await session.accept()
    number = 0
    async for text in session.iter_text():
        number += 1
        await session.send_text(f"{number} {text}")


async def pushing(session: WebSocket) -> None:
    """Says back what it hears, and which it was, and has something else to do every few milliseconds."""
    await session.accept()
    number = 0
    while True:
        hearing, other = asyncio.create_task(session.receive_text()), asyncio.create_task(asyncio.sleep(0.003))
        done, pending = await asyncio.wait({hearing, other}, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        if hearing in done:
            number += 1
            try:
                await session.send_text(f"{number} {hearing.result()}")
            except WebSocketDisconnect:
                return


def a_socket_app() -> Starlette:
    rules = [
        Rule("/shut", "2/hour", messages="3/hour"),
        Rule("/slow", None, messages="100/s burst 1"),
        Rule("/pushing", None, messages="100/s burst 1"),
    ]
    endpoints = {"/shut": echo, "/slow": echo, "/pushing": pushing}
    return Starlette(
        routes=[WebSocketRoute(path, endpoint) for path, endpoint in endpoints.items()],
        middleware=[Middleware(RateLimitMiddleware, rules=rules, store=a_store(), key=header("x-client"))],
    )


socket_app = a_socket_app()


def a_careless_app() -> Starlette:
    """All that goes wrong silently, at once."""
    limited = Middleware(RateLimitMiddleware, "10/s", rules=[Rule("/helo", "1/s")])
    return Starlette(routes=[Route("/", hello)], middleware=[limited])


careless_app = a_careless_app()
