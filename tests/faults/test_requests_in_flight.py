"""Requests in flight over four workers of a real server, with clients that break off, and a worker that is killed."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter

import httpx
import pytest
from redis import Redis

from asgi_ratelimit import Limiter, RedisStore
from tests.support.export_app import LIMIT, NAME
from tests.support.overriding import until_async
from tests.support.redis_server import RedisServer
from tests.support.server import Uvicorn
from tests.support.trial import settled

APP = "tests.support.export_app:app"
NAMES = ["ann", "bob", "eve", "joe"]
REQUESTS = 3
WITHIN = 60.0


class Crowd:
    """Clients with a few names, which read streams, or break them off."""

    def __init__(self, url: str) -> None:
        self.statuses: Counter[int] = Counter()
        self.workers: set[int] = set()
        limits = httpx.Limits(max_keepalive_connections=0)
        self.client = httpx.AsyncClient(base_url=url, limits=limits, timeout=WITHIN, trust_env=False)

    async def visit(self, number: int) -> None:
        """Send some requests, each over a connection of its own."""
        chance, headers = random.Random(number), {"x-client": NAMES[number % len(NAMES)]}
        for _ in range(REQUESTS):
            try:
                async with self.client.stream("GET", "/", headers=headers) as answer:
                    self.statuses[answer.status_code] += 1
                    if answer.status_code == 200:
                        self.workers.add(int(answer.headers["x-worker"]))
                    async for _ in answer.aiter_raw():
                        if chance.random() < 0.2:
                            break
            except httpx.TransportError:  # of a worker that was killed
                self.statuses[0] += 1


@pytest.mark.anyio
@pytest.mark.parametrize(("clients", "is_killed"), [(80, False), pytest.param(200, True, marks=pytest.mark.long)])
async def test_no_more_than_the_limit_are_ever_under_way(clients: int, is_killed: bool) -> None:
    """An independent counter says so; then every place is there again, those of a killed worker in half a minute."""
    with RedisServer() as server, Uvicorn(APP, "--workers", "4", env={"STORE": server.url}) as uvicorn:
        crowd, counter, store = Crowd(uvicorn.url), Redis.from_url(server.url), RedisStore(server.url)
        async with crowd.client, asyncio.TaskGroup() as group:
            for number in range(clients):
                group.create_task(crowd.visit(number))
            if is_killed:
                await settled(lambda: len(crowd.workers) > 1)
                victim = crowd.workers.pop()
                counter.sadd("killed", victim)
                os.kill(victim, signal.SIGKILL)
        assert [score for _, score in counter.zrange("most", -1, -1, withscores=True)] == [LIMIT]
        assert crowd.statuses[429] > 0
        limiter = Limiter(f"{LIMIT} at once", store=store, name=NAME)

        async def are_free() -> bool:
            return all([(await limiter.peek(name)).remaining == LIMIT for name in NAMES])

        await until_async(are_free)
        await store.aclose()
        counter.close()
