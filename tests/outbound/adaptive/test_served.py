"""An adaptive transport in front of real connections, to a stand-in for Discord in a real uvicorn."""

from __future__ import annotations

import asyncio
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx

from asgi_ratelimit import AdaptiveTransport
from tests.stand_ins.discord_server import discord_server

PATHS = [f"/channels/{channel}/messages" for channel in range(8)] * 8
TIMEOUT = 60.0


def test_threads(module: Any) -> None:
    """All are served, whichever thread they are in, and none is refused."""
    with discord_server(limit=4, period=0.5, sliding=1) as server:
        transport = AdaptiveTransport(module.HTTPTransport(), profile="discord", quota="45/s", retries=0)
        client = module.Client(transport=transport, base_url=server.url, timeout=TIMEOUT)
        with client, ThreadPoolExecutor(16) as pool:
            answers = list(pool.map(client.get, PATHS))
    assert Counter(answer.status_code for answer in answers) == {200: len(PATHS)}


def test_tasks(module: Any) -> None:
    """The same with async."""

    async def main(url: str) -> list[Any]:
        transport = AdaptiveTransport(module.AsyncHTTPTransport(), profile="discord", quota="45/s", retries=0)
        async with module.AsyncClient(transport=transport, base_url=url, timeout=TIMEOUT) as client:
            return await asyncio.gather(*[client.get(path) for path in PATHS])

    with discord_server(limit=4, period=0.5) as server:
        answers = asyncio.run(main(server.url))
    assert Counter(answer.status_code for answer in answers) == {200: len(PATHS)}


class InThreads(httpx.AsyncBaseTransport):
    """Sends in threads, so that its connections belong to no loop."""

    def __init__(self) -> None:
        self.inner = httpx.HTTPTransport()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        answer = await asyncio.to_thread(self.inner.handle_request, request)
        return httpx.Response(answer.status_code, headers=answer.headers, content=answer.read())


def test_several_event_loops() -> None:
    """One transport, used by loops in several threads."""
    threads = InThreads()
    transport = AdaptiveTransport(threads, profile="discord", quota="45/s", retries=0)

    async def main(url: str) -> list[int]:
        client = httpx.AsyncClient(transport=transport, base_url=url, timeout=TIMEOUT)
        answers = await asyncio.gather(*[client.get(path) for path in PATHS[:16]])
        return [answer.status_code for answer in answers]

    with discord_server(limit=4, period=0.5, sliding=1) as server, ThreadPoolExecutor(3) as pool:
        statuses = list(pool.map(lambda url: asyncio.run(main(url)), [server.url] * 3))
        threads.inner.close()
    assert statuses == [[200] * 16] * 3
