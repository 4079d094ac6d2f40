"""An app that one would like to get more out of than it gives: one request a day, by every kind of key.

Each row of the corpus has a part of its own, ``/area/row``, so that no row sees what another has used.
"""

from __future__ import annotations

import os

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.types import Receive, Scope, Send

from asgi_ratelimit import MemoryStore, RateLimitMiddleware, RedisStore, Rule, client_ip
from asgi_ratelimit.keys import combine, cookie, header, path_param
from asgi_ratelimit.keys.base import KeyFunction

PROXIES = ["127.0.0.0/8", "10.0.0.0/8"]
STORE = os.environ.get("STORE", "memory://")
ONCE = "1/day"


async def got_through(request: Request) -> Response:
    return PlainTextResponse("got through")


class AnyMethod:
    """An endpoint that answers whatever it is asked by."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse("got through")(scope, receive, send)


def row(key: KeyFunction) -> KeyFunction:
    return combine(key, path_param("row"))


def once(path: str, key: KeyFunction, methods: list[str] | None = None) -> Rule:
    return Rule(path, ONCE, key=key, methods=methods, only=True)


RULES = [
    once("/direct/{row}", row(client_ip())),
    once("/xff/{row}", row(client_ip(PROXIES))),
    once("/forwarded/{row}", row(client_ip(PROXIES, forwarded_header="forwarded"))),
    once("/real-ip/{row}", row(client_ip(PROXIES, forwarded_header="x-real-ip"))),
    once("/header/{row}", row(header("x-api-key"))),
    once("/cookie/{row}", row(cookie("session"))),
    once("/any/{row}", path_param("row")),
    once("/get/{row}", path_param("row"), ["GET"]),
    once("/number/{row:int}", path_param("row")),
    once("/mounted/{row:int}", path_param("row")),
    once("/two/{one}/{other}", combine(path_param("one"), path_param("other"))),
]
ANY = AnyMethod()
app = Starlette(
    routes=[
        *(
            Route(f"/{area}/{{row}}", got_through)
            for area in ("direct", "xff", "forwarded", "real-ip", "header", "cookie")
        ),
        Route("/any/{row}", ANY),
        Route("/get/{row}", got_through),
        Route("/number/{row:int}", got_through),
        Mount("/mounted", routes=[Route("/{row:int}", got_through)]),
        Route("/two/{one}/{other}", got_through),
    ],
    middleware=[
        Middleware(
            RateLimitMiddleware,
            ONCE,
            key=client_ip(PROXIES),
            rules=RULES,
            store=MemoryStore() if STORE == "memory://" else RedisStore(STORE, timeout=20),
        )
    ],
)
