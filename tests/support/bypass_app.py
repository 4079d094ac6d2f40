"""An app that one would like to get more out of than it gives: one request a day, by every kind of key.

Each row of the corpus has a part of its own, ``/area/row``, so that no row sees what another has used.
"""

from __future__ import annotations

import os

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from asgi_ratelimit import MemoryStore, RateLimitMiddleware, RedisStore, Rule, client_ip
from asgi_ratelimit.keys import combine, header, path_param
from asgi_ratelimit.keys.base import KeyFunction

PROXIES = ["127.0.0.0/8", "10.0.0.0/8"]
STORE = os.environ.get("STORE", "memory://")
ONCE = "1/day"


GOT_THROUGH = PlainTextResponse("got through")

# Whose bucket it is in each area, beside the row.
AREAS: dict[str, KeyFunction] = {
    "direct": client_ip(),
    "xff": client_ip(PROXIES),
    "header": header("x-api-key"),
}


def once(path: str, key: KeyFunction, methods: list[str] | None = None) -> Rule:
    return Rule(path, ONCE, key=key, methods=methods, only=True)


RULES = [
    *(once(f"/{area}/{{row}}", combine(key, path_param("row"))) for area, key in AREAS.items()),
    once("/any/{row}", path_param("row")),
    once("/get/{row}", path_param("row"), ["GET"]),
    once("/number/{row:int}", path_param("row")),
    once("/mounted/{row:int}", path_param("row")),
    once("/two/{one}/{other}", combine(path_param("one"), path_param("other"))),
]
app = Starlette(
    routes=[
        Route("/any/{row}", GOT_THROUGH),  # by any method
        *(Route(f"/{area}/{{row}}", GOT_THROUGH, methods=["GET"]) for area in (*AREAS, "get")),
        Route("/number/{row:int}", GOT_THROUGH, methods=["GET"]),
        Mount("/mounted", routes=[Route("/{row:int}", GOT_THROUGH, methods=["GET"])]),
        Route("/two/{one}/{other}", GOT_THROUGH, methods=["GET"]),
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
