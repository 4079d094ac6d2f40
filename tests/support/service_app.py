"""A service for clients that are paced, which a real server runs."""

from __future__ import annotations

import asyncio
import gzip
from collections import Counter
from collections.abc import AsyncIterator

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

COMPRESSED = gzip.compress(b'{"usage": {"total_tokens": 7}}', mtime=0)

_requests: Counter[str] = Counter()


async def usage(request: Request) -> Response:
    """An answer that says at its end what it has used, compressed."""
    return Response(COMPRESSED, headers={"content-encoding": "gzip"}, media_type="application/json")


async def endless(request: Request) -> Response:
    """A stream that does not end."""

    async def parts() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 1000
            await asyncio.sleep(0.001)

    return StreamingResponse(parts())


async def refuses_once(request: Request) -> Response:
    """Refuses the first request of a client, for a tenth of a second."""
    client = request.headers["x-client"]
    _requests[client] += 1
    if _requests[client] == 1:
        return Response("later", 503, {"retry-after-ms": "100"})
    return Response(str(_requests[client]))


app = Starlette(
    routes=[
        Route("/usage", usage),
        Route("/endless", endless),
        Route("/refuses-once", refuses_once, methods=["GET", "POST"]),
    ]
)
