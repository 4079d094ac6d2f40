"""Many processes on one Redis, some of which are killed: workers of a real server."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress

import httpx
import pytest

from tests.support.overriding import until
from tests.support.redis_server import RedisServer
from tests.support.server import Uvicorn
from tests.support.trial import require_times_to_live

pytestmark = pytest.mark.anyio

WORKERS = 4
LIMIT = 80
# Seconds for an answer, on a machine that is busy.
WITHIN = 60.0


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    """A Redis for this module, to be killed."""
    with RedisServer() as own:
        yield own


@pytest.fixture(scope="module")
def workers(server: RedisServer) -> Iterator[Uvicorn]:
    """Processes that share one quota over that Redis."""
    env = {"STORE": server.url, "QUOTA": f"{LIMIT}/day", "REPLICAS": str(WORKERS)}
    with Uvicorn("tests.support.apps:starlette_app", "--workers", str(WORKERS), env=env) as uvicorn:
        yield uvicorn


class Crowd:
    """Clients of one name that send requests again and again, and count the answers.

    ``expected`` are errors that may come in place of an answer.
    """

    def __init__(self, client: httpx.AsyncClient, expected: tuple[type[Exception], ...]) -> None:
        self.statuses: Counter[int] = Counter()
        self.workers: set[int] = set()
        self.stopped = False
        self._client = client
        self._expected = expected

    async def press(self) -> None:
        """Send limited and unlimited requests until stopped."""
        while not self.stopped:
            with suppress(*self._expected):
                self.statuses[(await self._client.get("/who")).status_code] += 1
                self.workers.add(int((await self._client.get("/free/who")).text))

    async def more(self, answers: int) -> None:
        """Return after so many more answers."""
        target = self.statuses.total() + answers
        await until(lambda: self.statuses.total() >= target)


@asynccontextmanager
async def crowd_at(workers: Uvicorn, name: str, *expected: type[Exception], people: int = 6) -> AsyncIterator[Crowd]:
    """While the block runs, clients of one name send requests over new connections, so that every worker gets some."""
    limits, headers = httpx.Limits(max_keepalive_connections=0), {"x-client": name}
    async with httpx.AsyncClient(
        base_url=workers.url, headers=headers, limits=limits, timeout=WITHIN, trust_env=False
    ) as client:
        crowd = Crowd(client, expected)
        async with asyncio.TaskGroup() as group:
            for _ in range(people):
                group.create_task(crowd.press())
            yield crowd
            crowd.stopped = True


async def test_workers_that_are_killed(server: RedisServer, workers: Uvicorn) -> None:
    """Others take their places, and together they admit no more than the quota has."""
    async with crowd_at(workers, "a", httpx.NetworkError, httpx.RemoteProtocolError, people=16) as crowd:
        await until(lambda: len(crowd.workers) == WORKERS)
        for victim in sorted(crowd.workers)[:2]:
            os.kill(victim, signal.SIGKILL)
            await crowd.more(30)
        await until(lambda: len(crowd.workers) >= WORKERS + 2)
    assert set(crowd.statuses) == {200, 429}
    assert crowd.statuses[200] <= LIMIT
    require_times_to_live(server)


async def test_a_redis_that_is_killed_twice_under_workers(server: RedisServer, workers: Uvicorn) -> None:
    """Every request is answered, and none with a 500.

    A Redis that has lost its keys gives the whole quota again; the outages themselves give less than one more.
    """
    async with crowd_at(workers, "b") as crowd:
        await crowd.more(2 * LIMIT)
        before = crowd.statuses[200]
        for _ in range(2):
            server.kill()
            await crowd.more(LIMIT)
            server.start()
            await crowd.more(2 * LIMIT)
    assert set(crowd.statuses) == {200, 429}
    assert before == LIMIT
    assert crowd.statuses[200] <= 4 * LIMIT
    require_times_to_live(server)
