"""An app of long answers, a few at once for each client, which counts those under way by itself, in Redis."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from itertools import count
from typing import Any

from redis import Redis
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from asgi_ratelimit import RateLimitMiddleware, RedisStore

LIMIT, NAME = 5, "exports"
PARTS, PAUSE = 4, 0.01

# One more of a client is under way; the most that were, without those of workers that were killed.
ENTER = """
local count = 0
redis.call('SADD', KEYS[1], ARGV[1])
for _, each in ipairs(redis.call('SMEMBERS', KEYS[1])) do
  if redis.call('SISMEMBER', 'killed', string.match(each, '%d+')) == 0 then count = count + 1 end
end
redis.call('ZADD', 'most', 'GT', count, KEYS[1])
"""

STORE = os.environ.get("STORE", "redis://localhost")
_counter: Any = Redis.from_url(STORE)
_numbers = count()


async def parts() -> AsyncIterator[bytes]:
    """A body that takes some time."""
    for _ in range(PARTS):
        yield b"part"
        await asyncio.sleep(PAUSE)


async def export(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with a stream; the process is in a header."""
    if scope["type"] != "http":
        return
    client, own = Request(scope).headers["x-client"], f"{os.getpid()} {next(_numbers)}"
    _counter.eval(ENTER, 1, client, own)

    async def counted_send(message: Message) -> None:
        if message["type"] == "http.response.body" and not message.get("more_body"):
            _counter.srem(client, own)  # Starlette takes some turns to come to its end then
        await send(message)

    try:
        await StreamingResponse(parts(), headers={"x-worker": str(os.getpid())})(scope, receive, counted_send)
    finally:
        _counter.srem(client, own)


app = RateLimitMiddleware(
    export,
    f"{LIMIT} at once",
    key=lambda request: request.headers["x-client"],
    store=RedisStore(STORE, timeout=10.0),
    name=NAME,
)
