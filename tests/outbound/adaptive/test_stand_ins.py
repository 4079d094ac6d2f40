"""An adaptive transport over real connections, to a server that is limited as each kind of API is."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any
from uuid import uuid4

import httpx
import httpx2
import pytest

from asgi_ratelimit import AdaptiveTransport
from tests.stand_ins.discord_server import discord_server
from tests.stand_ins.reporting.github_server import github_server
from tests.stand_ins.reporting.ietf_server import ietf_server
from tests.support.server import Uvicorn

CHAT = {"model": "small", "max_tokens": 20, "messages": [{"role": "user", "content": "Write 5"}]}


def language_model(vendor: str, **limits: list[float]) -> Uvicorn:
    """A language model with limits of units in seconds."""
    text = json.dumps({name.replace("_", "-"): limit for name, limit in limits.items()})
    return Uvicorn(f"tests.stand_ins.{vendor}_server:app", env={"STAND_IN_LIMITS": text})


SERVERS: dict[str, Callable[[], Uvicorn]] = {
    "discord": lambda: discord_server(limit=30, period=1),
    "github": lambda: github_server(limit=30, period=1, points=100_000),
    "ietf": lambda: ietf_server(burst=30),
    "openai": lambda: language_model("openai", requests=[30, 1.0], tokens=[40_000, 1.0]),
    "anthropic": lambda: language_model(
        "anthropic", requests=[30, 1.0], input_tokens=[40_000, 1.0], output_tokens=[40_000, 1.0]
    ),
}
CALLS: dict[str, dict[str, Any]] = {
    "discord": {"method": "GET", "url": "/channels/1/messages"},
    "github": {"method": "GET", "url": "/repos/one/issues"},
    "ietf": {"method": "GET", "url": "/things"},
    "openai": {"method": "POST", "url": "/v1/chat/completions", "json": CHAT},
    "anthropic": {"method": "POST", "url": "/v1/messages", "json": CHAT},
}


@pytest.fixture(scope="module")
def urls() -> Iterator[dict[str, str]]:
    """The servers, each with 30 requests a second."""
    with ExitStack() as servers:
        yield {name: servers.enter_context(server()).url for name, server in SERVERS.items()}


def send(module: Any, with_async: bool, url: str, call: dict[str, Any], number: int, **options: Any) -> int:
    """Send a request so many times at once; all are served. Returns how many refusals there were on the way."""
    key = str(uuid4())
    settings = {"base_url": url, "timeout": 60.0, "headers": {"authorization": f"Bearer {key}", "x-api-key": key}}

    async def in_tasks() -> list[Any]:
        transport = AdaptiveTransport(module.AsyncHTTPTransport(), **options)
        async with module.AsyncClient(transport=transport, **settings) as client:
            return await asyncio.gather(*[client.request(**call) for _ in range(number)])

    def in_threads() -> list[Any]:
        transport = AdaptiveTransport(module.HTTPTransport(), **options)
        with module.Client(transport=transport, **settings) as client, ThreadPoolExecutor(8) as pool:
            return list(pool.map(lambda _: client.request(**call), range(number)))

    answers = asyncio.run(in_tasks()) if with_async else in_threads()
    assert Counter(answer.status_code for answer in answers) == {200: number}
    return sum(answer.extensions["pace"]["attempts"] - 1 for answer in answers)


CLIENTS = pytest.mark.parametrize(("module", "with_async"), [(httpx, False), (httpx2, True)], ids=["sync", "async"])
"""Of either package, one without and one with ``async``."""


@CLIENTS
@pytest.mark.parametrize("api", CALLS)
def test_all_are_served(urls: dict[str, str], module: Any, with_async: bool, api: str) -> None:
    """32 requests at once, of which the server allows 30: the others wait. None is refused for a window's sake.

    Where units come back one by one, as those of language models do, a request that overtakes another may be refused.
    """
    refused = send(module, with_async, urls[api], CALLS[api], 32, profile=api, retries=3)
    assert refused <= (0 if api in ("discord", "github", "ietf") else 2)


@CLIENTS
def test_a_secondary_limit_is_waited_for(module: Any, with_async: bool) -> None:
    """No header shows it. Whoever is refused waits as long as the answer says, and is served then."""
    with github_server(points=10, points_period=1, limit=1000) as server:
        assert send(module, with_async, server.url, CALLS["github"], 12, profile="github", retries=5) >= 1


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
