"""What must hold for a limiter whatever happens to its Redis: a trial records all decisions and checks them."""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from logging.handlers import BufferingHandler
from operator import le
from typing import Any

from asgi_ratelimit import Decision, Limiter, RedisStore, TokenBucket
from asgi_ratelimit.background import background_loop
from asgi_ratelimit.logs import logger
from tests.support.overriding import until, until_async
from tests.support.redis_cluster import asked
from tests.support.redis_server import RedisServer

QUOTA = TokenBucket(20, 86_400)  # a unit comes back in more than an hour
# A deadline in seconds that does not pass even on a busy machine, unless ``hurried``.
PATIENT = 30.0
# Seconds that an answer may be late because the machine is busy.
GRACE = 15.0


@dataclass
class Trial:
    """A limiter under test, and all its decisions."""

    limiter: Limiter
    deadline: float
    decisions: list[Decision] = field(default_factory=list)

    @classmethod
    def on(cls, source: Any, quota: Any = QUOTA, **options: Any) -> Trial:
        """A limiter on ``source``."""
        options = {"timeout": PATIENT, **options}
        return cls(Limiter(quota, store=RedisStore(source, **options)), options["timeout"])

    async def take(self, key: str = "key", cost: float = 1) -> Decision:
        """A decision, within the deadline and without an error."""
        async with asyncio.timeout(self.deadline + GRACE):
            decision = await self.limiter.rate_limit(key, cost)
        self.decisions.append(decision)
        return decision

    async def takes(self, count: int, key: str = "key") -> list[Decision]:
        """``count`` decisions at once; ``{}`` in the key stands for the number of each."""
        return await asyncio.gather(*[self.take(key.format(number)) for number in range(count)])

    def admitted(self, key: str = "key") -> int:
        """How many takes of a key were allowed."""
        return sum(d.allowed for d in self.decisions if d.take is not None and d.take.charges[0].key == key)

    async def until_degraded(self) -> None:
        """Take until the store is out."""
        await self._until(lambda decision: decision.degraded)

    async def until_back(self) -> None:
        """Take until Redis decides again."""
        await self._until(lambda decision: not decision.degraded)

    async def _until(self, is_so: Callable[[Decision], bool]) -> None:
        async def has_come() -> bool:
            return is_so(await self.take(f"probe {len(self.decisions)}"))

        await until_async(has_come)


@asynccontextmanager
async def hurried() -> AsyncIterator[None]:
    """Deadlines of this event loop pass soon while the block runs: its time jumps by a second again and again.

    So a Redis that is silent misses a deadline at once that one which answers meets even on a busy machine.
    """
    task = asyncio.create_task(_hurry())
    try:
        yield
    finally:
        task.cancel()


@asynccontextmanager
async def frozen(server: RedisServer) -> AsyncIterator[None]:
    """A server that answers nothing while the block runs, so that calls miss their deadlines, which pass soon."""
    server.pause()
    async with hurried():
        yield
    server.resume()


async def _hurry() -> None:
    loop, genuine, ahead = asyncio.get_running_loop(), asyncio.get_running_loop().time, 0.0
    loop.time = lambda: genuine() + ahead  # type: ignore[method-assign]
    while True:
        await asyncio.sleep(0.005)
        ahead += 1.0
        for _ in range(20):  # what a deadline sets off goes on before the next one passes
            await asyncio.sleep(0)


@asynccontextmanager
async def trial(source: Any, *servers: RedisServer, outages: int = 1, **options: Any) -> AsyncIterator[Trial]:
    """A trial on ``source``, behind which are ``servers``, with a number of outages that it must recover from.

    At its end: every take was answered in time and without an error; Redis decides again; decisions were degraded if,
    and only if, there was an outage, whose begin and end were logged once each; every key has a time to live; no task,
    file or connection is left.
    """
    background_loop.loop().call_soon_threadsafe(bool)  # it is opened once, and stays
    before, handler = _leftovers(servers), BufferingHandler(10**6)
    tried = Trial.on(source, **options)
    logger.addHandler(handler)
    try:
        yield tried
        await tried.until_back()
    finally:
        async with asyncio.timeout(tried.deadline + GRACE):  # the call in flight has its deadline
            await tried.limiter.aclose()
        logger.removeHandler(handler)
    messages = [record.getMessage() for record in handler.buffer]
    assert transitions(handler.buffer) == ["ERROR", "WARNING"] * outages, messages
    assert any(decision.degraded for decision in tried.decisions) == (outages > 0)
    require_times_to_live(*servers)
    # A server notices only after a while that a client has gone; what others left may have gone in between
    await until(lambda: all(map(le, _leftovers(servers), before)))


def transitions(records: Sequence[logging.LogRecord]) -> list[str]:
    """The level of the record of each transition."""
    return [record.levelname for record in records]


def require_times_to_live(*servers: RedisServer) -> None:
    """Each key has a time to live, by the servers' own count."""
    for server in servers:
        for keys, ending in re.findall(r"keys=(\d+),expires=(\d+)", asked(server, "INFO", "keyspace").decode()):
            assert keys == ending


def _leftovers(servers: tuple[RedisServer, ...]) -> tuple[int, ...]:
    """How many tasks, open files, and connections to each server there are."""
    connections = [connections_of(server) for server in servers]
    return len(asyncio.all_tasks()), len(os.listdir("/dev/fd")), *connections


def connections_of(server: RedisServer) -> int:
    """How many clients a server has, without replicas and the one that lists them."""
    return len(asked(server, "CLIENT", "LIST", "TYPE", "normal").splitlines()) - 1
