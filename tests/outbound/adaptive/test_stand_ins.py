"""An adaptive transport over real connections, to a server that is limited as each kind of API is."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import httpx2
import pytest

from asgi_ratelimit import AdaptiveTransport
from tests.stand_ins.discord_server import discord_server
from tests.stand_ins.reporting.github_server import github_server
from tests.stand_ins.reporting.ietf_server import ietf_server
from tests.support.server import Uvicorn

# The servers, each with 30 requests a second, and a path of theirs. Tests of their clients have language models.
SERVERS: dict[str, tuple[Callable[[], Uvicorn], str]] = {
    "discord": (lambda: discord_server(limit=30, period=1), "/channels/1/messages"),
    "github": (lambda: github_server(limit=30, period=1, points=100_000), "/repos/one/issues"),
    "ietf": (lambda: ietf_server(burst=30), "/things"),
}


def send(module: Any, with_async: bool, url: str, path: str, number: int, **options: Any) -> int:
    """Send a request so many times at once; all are served. Returns how many refusals there were on the way."""
    settings = {"base_url": url, "timeout": 60.0}

    async def in_tasks() -> list[Any]:
        transport = AdaptiveTransport(module.AsyncHTTPTransport(), **options)
        async with module.AsyncClient(transport=transport, **settings) as client:
            return await asyncio.gather(*[client.get(path) for _ in range(number)])

    def in_threads() -> list[Any]:
        transport = AdaptiveTransport(module.HTTPTransport(), **options)
        with module.Client(transport=transport, **settings) as client, ThreadPoolExecutor(8) as pool:
            return list(pool.map(lambda _: client.get(path), range(number)))

    answers = asyncio.run(in_tasks()) if with_async else in_threads()
    assert Counter(answer.status_code for answer in answers) == {200: number}
    return sum(answer.extensions["pace"]["attempts"] - 1 for answer in answers)


@pytest.mark.parametrize(("module", "with_async"), [(httpx, False), (httpx2, True)], ids=["sync", "async"])
@pytest.mark.parametrize("api", SERVERS)
def test_all_are_served(module: Any, with_async: bool, api: str) -> None:
    """32 requests at once, of which the server allows 30: the others wait, and none is refused."""
    start, path = SERVERS[api]
    with start() as server:
        assert send(module, with_async, server.url, path, 32, profile=api, retries=3) == 0


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
        client = httpx.AsyncClient(transport=transport, base_url=url, timeout=60.0)
        answers = await asyncio.gather(*[client.get(f"/channels/{number % 8}/messages") for number in range(16)])
        return [answer.status_code for answer in answers]

    with discord_server(limit=4, period=0.5, sliding=1) as server, ThreadPoolExecutor(3) as pool:
        statuses = list(pool.map(lambda url: asyncio.run(main(url)), [server.url] * 3))
        threads.inner.close()
    assert statuses == [[200] * 16] * 3
