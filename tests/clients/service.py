"""A service for clients: bodies of several kinds, redirects, and refusals. How its answers are settled."""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

LINES = [b"first line\n", b"second line\n", b"third line\n"]
BODY = b"".join(LINES)

requests: Counter[str] = Counter()


async def streamed(request: Request) -> Response:
    """Line by line."""
    return StreamingResponse(lines(), media_type="text/plain")


async def lines() -> AsyncIterator[bytes]:
    """The lines."""
    for line in LINES:
        yield line


async def echo(request: Request) -> Response:
    """The body of the request."""
    return Response(await request.body())


async def refused(request: Request) -> Response:
    """A refusal at first, then the body of the request; each ``id`` begins anew."""
    requests[request.url.query] += 1
    if requests[request.url.query] == 1:
        return JSONResponse({"error": "slow down"}, 429, {"retry-after-ms": "1"})
    return await echo(request)


compressed = Response(gzip.compress(BODY), headers={"content-encoding": "gzip"}, media_type="text/plain")
app = Starlette(
    routes=[
        Route("/whole", PlainTextResponse(BODY)),
        Route("/streamed", streamed),
        Route("/compressed", compressed),
        Route("/empty", Response(status_code=204)),
        Route("/redirect", RedirectResponse("/whole")),
        Route("/echo", echo, methods=["POST"]),
        Route("/refused", refused, methods=["POST"]),
    ]
)


class Settled:
    """A ``settle`` function that records the answers, and says that each has cost 1."""

    def __init__(self, reads_body: bool = True) -> None:
        self.reads_body = reads_body
        self.answers: list[tuple[int, str | None, bytes]] = []

    def __call__(self, answer: Any) -> int:
        self.answers.append((answer.status_code, answer.headers.get("content-type"), answer.body))
        return 1
