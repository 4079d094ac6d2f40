"""Servers of which fewer units than the limit are there at once, and that say in whole seconds when there is more."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import httpx
import pytest

from asgi_ratelimit import AdaptiveTransport, MemoryStore
from asgi_ratelimit.testing import SteppedClock
from examples.adaptive_client import fetch, limited_app
from tests.support.adaptive_clients import Caller
from tests.support.server import Uvicorn
from tests.support.simulated_fleet import Server
from tests.support.store_elsewhere import StoreElsewhere

# The latency of a server on the same machine, in seconds.
NEARBY = (0.0, 0.002)

REMOTE = (0.02, 0.04)


class Network(Server):
    """A network with a latency before an app, in which requests overtake one another."""

    def __init__(self, app: Any, latency: tuple[float, float], seed: int = 1) -> None:
        super().__init__(lambda path: (200, {}, None), latency, seed)
        self._app = httpx.ASGITransport(app)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Answer."""
        await self._pass()
        response = await self._app.handle_async_request(request)
        await self._pass()
        return response


@pytest.mark.parametrize(
    ("quota", "seconds"),
    [
        ("20/s burst 5", 12),
        ("20/s burst 20", 4),
        ("20/s fixed", 3),
        ("20/s rolling", 4),
        ("30/minute fixed", 70),
        ("60/minute fixed; 10/s burst 10", 60),
    ],
)
@pytest.mark.parametrize("latency", [NEARBY, REMOTE])
def test_nobody_is_refused_and_little_is_left_unused(quota: str, seconds: float, latency: tuple[float, float]) -> None:
    """All that is there goes at once, and then, after the time that the answers say, all that has come back."""
    clock = SteppedClock()
    started, server = clock.now, Network(limited_app(quota, MemoryStore(clock=clock)), latency)
    transport = AdaptiveTransport(server, store=MemoryStore(clock=clock), retries=0)
    assert clock.run(fetch(transport, 60)) == {200: 60}
    assert clock.now - started <= seconds * 1.1


@pytest.mark.parametrize("quota", ["20/s burst 5", "20/s burst 1", "100/s burst 3", "20/s fixed"])
@pytest.mark.parametrize("latency", [NEARBY, REMOTE, (0.1, 0.2)])
def test_processes_that_share_a_store_agree(quota: str, latency: tuple[float, float]) -> None:
    """Three get along without a refusal: no more goes at once than answers have shown to be there."""
    clock = SteppedClock()
    app, store = limited_app(quota, MemoryStore(clock=clock)), MemoryStore(clock=clock)
    transports = [
        AdaptiveTransport(Network(app, latency, seed), store=StoreElsewhere(store), retries=0) for seed in range(3)
    ]

    async def main() -> list[Counter[int]]:
        return await asyncio.gather(*[fetch(each, 30) for each in transports])

    assert clock.run(main()) == [{200: 30}] * 3


class Crowded:
    """A server of 20 requests a second, of which others use some before ours come: in windows, or in a log."""

    def __init__(self, others: int, is_rolling: bool = False) -> None:
        self.others, self.is_rolling = others, is_rolling
        self.times: list[float] = []
        self.refused = 0

    def answer(self, *_: object) -> Any:
        """The answer to a request that comes now."""
        now = asyncio.get_running_loop().time()
        begin = now - 1.0 if self.is_rolling else int(now)
        left = 20 - self.others - sum(at > begin if self.is_rolling else at >= begin for at in self.times)
        is_served = left > 0
        self.refused += not is_served
        self.times += [now] if is_served else []
        headers = {"ratelimit-policy": '"a";q=20;w=1', "ratelimit": f'"a";r={max(left - 1, 0)};t=1'}
        return (200, headers) if is_served else (429, {**headers, "retry-after": "1"})


@pytest.mark.parametrize(
    ("is_rolling", "latency"), [(False, 0.003), (False, 0.03), (False, 0.1), (False, 0.25), (True, 0.003), (True, 0.1)]
)
@pytest.mark.parametrize("used", [1, 5, 15, 19])
def test_a_window_that_others_use_refuses_one_request_at_most(is_rolling: bool, latency: float, used: int) -> None:
    """What answers leave counts, not the limit."""
    server = Crowded(used, is_rolling)
    caller = Caller(server.answer, latency=latency, profile="ietf", retries=1)
    count = 30 * (20 - used)
    assert caller.get(*["/"] * count) == [200] * count
    assert server.refused <= 1


def test_a_real_server(redis_url: str) -> None:
    """Over real connections, to two processes that share a Redis: 40 a second, and not one refusal."""
    env = {"ASGI_RATELIMIT_STORE": redis_url}
    served = Uvicorn("examples.adaptive_client:app", "--factory", "--workers", "2", env=env)
    with served as server:
        transport = AdaptiveTransport(httpx.AsyncHTTPTransport(), retries=0)
        assert asyncio.run(fetch(transport, 60, server.url)) == {200: 60}
