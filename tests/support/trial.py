"""What must hold of a limiter whatever happens to its Redis: a trial keeps all decisions, and judges at its end."""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from asgi_ratelimit.decision import Decision
from asgi_ratelimit.limiter import Limiter
from asgi_ratelimit.quotas import TokenBucket
from asgi_ratelimit.stores import RedisStore
from tests.support.redis_cluster import asked
from tests.support.redis_server import RedisServer

QUOTA = TokenBucket(20, 86_400)  # a unit comes back in more than an hour
DEADLINE = 0.5
PATIENT = 30.0
"""The deadline where none is meant to pass, in seconds, on however busy a machine."""
GRACE = 3.0
"""Seconds that an answer may come late for want of a processor."""
BACK_WITHIN = 15


@dataclass
class Trial:
    """A limiter under test; every decision of its store is kept."""

    limiter: Limiter
    deadline: float
    decisions: list[Decision] = field(default_factory=list)

    @classmethod
    def on(cls, source: Any, quota: Any = QUOTA, **options: Any) -> Trial:
        """A limiter on ``source``."""
        options = {"timeout": DEADLINE, **options}
        return cls(Limiter(quota, store=RedisStore(source, **options)), options["timeout"])

    async def take(self, key: str = "key", cost: float = 1) -> Decision:
        """A decision, which comes within the deadline and without any error."""
        async with asyncio.timeout(self.deadline + GRACE):
            decision = await self.limiter.rate_limit(key, cost)
        self.decisions.append(decision)
        return decision

    async def takes(self, count: int, key: str = "key") -> list[Decision]:
        """So many decisions, all at once; ``{}`` in the key is the number of each."""
        return await asyncio.gather(*[self.take(key.format(number)) for number in range(count)])

    def admitted(self, key: str = "key") -> int:
        """How many takes of a key have passed."""
        return sum(d.allowed for d in self.decisions if d.take is not None and d.take.charges[0].key == key)

    async def until_cut(self) -> None:
        """Return when the store's connection is known to be lost."""
        lane: Any = self.limiter.store._lane()  # type: ignore[attr-defined]
        await settled(lambda: lane._link._pipe is None or not lane._link._pipe.is_clean)

    async def until_degraded(self) -> None:
        """Take until the store is found to be out."""
        await self._until(lambda decision: decision.degraded)

    async def until_back(self) -> None:
        """Take until Redis decides again, with nothing done to the store."""
        await self._until(lambda decision: not decision.degraded)

    async def _until(self, is_so: Callable[[Decision], bool]) -> None:
        for _ in range(BACK_WITHIN * 100):
            if is_so(await self.take(f"probe {len(self.decisions)}")):
                return
            await asyncio.sleep(0.01)
        raise TimeoutError("the store does not come back")


@asynccontextmanager
async def trial(source: Any, *servers: RedisServer, outages: int = 1, **options: Any) -> AsyncIterator[Trial]:
    """A trial on ``source``, which ``servers`` are behind, with so many outages from which it must come back.

    At the end: every take was answered in time and without an error (or the trial would not have come so far); Redis
    decides again by itself; decisions were degraded if, and only if, there was an outage, with one line in the log for
    its beginning and one for its end; every key has a time to live; no task, file or connection is left.
    """
    before, lines = _leftovers(servers), _Lines()
    tried = Trial.on(source, **{"timeout": DEADLINE if outages else PATIENT, **options})
    with lines:
        try:
            yield tried
            await tried.until_back()
        finally:
            async with asyncio.timeout(tried.deadline + GRACE):  # what is under way has its deadline, too
                await tried.limiter.aclose()
    assert [line.levelname for line in lines.seen] == ["ERROR", "WARNING"] * outages, lines
    assert any(decision.degraded for decision in tried.decisions) == (outages > 0)
    require_times_to_live(*servers)
    await settled(lambda: _leftovers(servers) == before)


def require_times_to_live(*servers: RedisServer) -> None:
    """Each key ends by itself, by the servers' own count."""
    for server in servers:
        for keys, ending in re.findall(r"keys=(\d+),expires=(\d+)", asked(server, "INFO", "keyspace").decode()):
            assert keys == ending


class _Lines(logging.Handler):
    """What the package logs while the block runs."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[logging.LogRecord] = []

    def __repr__(self) -> str:
        return "\n".join(["what was logged:", *[record.getMessage() for record in self.seen]])

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append(record)

    def __enter__(self) -> _Lines:
        logging.getLogger("asgi_ratelimit").addHandler(self)
        return self

    def __exit__(self, *failure: object) -> None:
        logging.getLogger("asgi_ratelimit").removeHandler(self)


def _leftovers(servers: tuple[RedisServer, ...]) -> tuple[int, ...]:
    """How many tasks, open files, and connections to each server there are."""
    connections = [connections_of(server) for server in servers]
    return len(asyncio.all_tasks()), len(os.listdir("/dev/fd")), *connections


def connections_of(server: RedisServer) -> int:
    """How many clients a server has, but for the one that asks and its replicas."""
    return len(asked(server, "CLIENT", "LIST", "TYPE", "normal").splitlines()) - 1


async def settled(is_so: Callable[[], bool]) -> None:
    """Return when it is so: a server sees only after a while that somebody has hung up."""
    for _ in range(BACK_WITHIN * 100):
        if is_so():
            return
        await asyncio.sleep(0.01)
    raise TimeoutError("it does not come to be so")
