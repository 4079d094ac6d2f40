"""Limits that change under load: when all workers answer by the new one, and what that does to their throughput.

``scripts/bench live`` prints the figures, and writes them to ``benchmarks/results/live.md``. Four workers of uvicorn
share a Redis. The real command changes a limit and takes that back, again and again. A command that changes nothing
takes turns with it, because a process that starts takes CPU time from the workers as well.
"""

from __future__ import annotations

import asyncio
import re
import statistics
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.redis_server import RedisServer
from tests.support.server import HOST, ROOT, Uvicorn

from .processes.load import Connection

WORKERS, CONNECTIONS, ROUNDS = 4, 32, 6
QUIET = 0.7
"""Seconds of a round in which no command runs."""
PATIENCE = 20.0
"""Seconds after which a limit that has not changed everywhere is an error."""

FILE_LIMIT, SET_LIMIT = 1_000_000_000, 2_000_000_000
QUOTA = "{}/400 days fixed"
LIMITS = f"""\
[[rules]]
name = "all"
path = "/"
quota = "{QUOTA.format(FILE_LIMIT)}"
"""

HEAD = re.compile(rb"HTTP/1.1 200 .*q=(\d+).*\br=(\d+)", re.DOTALL | re.IGNORECASE)


@dataclass
class Answers:
    """What all connections were answered: the limit that each worker has said last, and since when it says that."""

    count: int = 0
    used: int = 0
    failed: list[bytes] = field(default_factory=list)
    limits: dict[bytes, tuple[int, float]] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.limits}, {len(self.failed)} others, such as {self.failed[:1]}"

    def add(self, head: bytes, worker: bytes) -> None:
        match = HEAD.match(head)
        if match is None:
            self.failed.append(head)
            return
        limit, remaining = int(match[1]), int(match[2])
        self.count += 1
        self.used = limit - remaining
        if self.limits.get(worker, (0, 0.0))[0] != limit:
            self.limits[worker] = limit, time.perf_counter()

    async def changed_to(self, limit: int) -> float:
        """When the last worker began to answer by this limit; ``TimeoutError`` if one does not."""
        deadline = time.perf_counter() + PATIENCE
        while len(self.limits) < WORKERS or any(said != limit for said, _ in self.limits.values()):
            if time.perf_counter() > deadline:
                raise TimeoutError(f"not all of {WORKERS} workers have the limit {limit}: {self}")
            await asyncio.sleep(0.005)
        return max(since for _, since in self.limits.values())


@dataclass
class Figures:
    """Seconds from the return of a command until all workers have changed, and requests a second by what happens."""

    delays: list[float] = field(default_factory=list)
    rates: dict[str, list[float]] = field(default_factory=dict)
    forgotten: int = 0
    """Changes after which less was used than before the limit was set."""

    async def rate(self, of: str, answers: Answers, during: Callable[[], Awaitable[object]]) -> None:
        """Count what is answered during something."""
        before, start = answers.count, time.perf_counter()
        await during()
        self.rates.setdefault(of, []).append((answers.count - before) / (time.perf_counter() - start))


async def command(url: str, *arguments: str) -> float:
    """Run the command, and return when it has ended."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "asgi_ratelimit", *arguments, "--store", url),
        cwd=ROOT,
        stdout=asyncio.subprocess.DEVNULL,
    )
    if await process.wait():
        raise RuntimeError(f"asgi-ratelimit {' '.join(arguments)} has failed")
    return time.perf_counter()


async def open_evenly(port: int, answers: Answers) -> list[Connection]:
    """Connections that go on, as many to each worker: the system gives a new one to whichever worker is first."""
    opened: Counter[bytes] = Counter()
    connections = []
    while opened.total() < CONNECTIONS:
        connection, worker = await _open(port, answers)
        if opened[worker] < CONNECTIONS // WORKERS:
            opened[worker] += 1
            connections.append(connection)
        else:
            connection.close()
    return connections


async def _open(port: int, answers: Answers) -> tuple[Connection, bytes]:
    """A connection, and the worker that has answered its first request."""
    first: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def answered(head: bytes, worker: bytes) -> None:
        answers.add(head, worker)
        if not first.done():
            first.set_result(worker)

    def lost() -> None:
        answers.failed.append(b"connection lost")

    connection = Connection(answered, lost)
    await asyncio.get_running_loop().create_connection(lambda: connection, HOST, port)
    return connection, await first


async def measure(port: int, url: str) -> tuple[Figures, Answers]:
    answers, figures = Answers(), Figures()
    opened = await open_evenly(port, answers)

    async def change(limit: int, *arguments: str) -> None:
        returned = await command(url, *arguments)
        figures.delays.append(max(await answers.changed_to(limit) - returned, 0.0))
        figures.forgotten += answers.used < used

    await answers.changed_to(FILE_LIMIT)
    await asyncio.sleep(QUIET)
    for _ in range(ROUNDS):
        used = answers.used
        await figures.rate("before", answers, lambda: asyncio.sleep(QUIET))
        await figures.rate("beside `history`", answers, lambda: command(url, "history"))
        words = ("set", "all", QUOTA.format(SET_LIMIT), "--for", "1h")
        await figures.rate("beside `set`", answers, lambda: change(SET_LIMIT, *words))  # noqa: B023
        await figures.rate("while it is set", answers, lambda: asyncio.sleep(QUIET))
        await figures.rate("beside `unset`", answers, lambda: change(FILE_LIMIT, "unset", "all"))
        await figures.rate("after", answers, lambda: asyncio.sleep(QUIET))
    for connection in opened:
        connection.close()
    return figures, answers


def page(figures: Figures, answers: Answers) -> str:
    """The figures as a page."""
    delays = sorted(figures.delays)
    lines = ["# Limits that change under load", ""]
    lines += [f"{WORKERS} workers of uvicorn on one Redis, {CONNECTIONS} connections, {ROUNDS} rounds.", ""]
    lines += ["| from the return of `set` or `unset` until the last worker answers by the limit | seconds |"]
    lines += ["| --- | ---: |", f"| median of {len(delays)} | {statistics.median(delays):.2f} |"]
    lines += [f"| longest | {delays[-1]:.2f} |", "", "| requests a second | median | least | most |"]
    lines += ["| --- | ---: | ---: | ---: |"]
    for of, rates in figures.rates.items():
        lines.append(f"| {of} | {statistics.median(rates):.0f} | {min(rates):.0f} | {max(rates):.0f} |")
    lines += ["", f"{answers.count} requests were answered with 200, {len(answers.failed)} in any other way. After "]
    lines[-1] += f"{figures.forgotten} of {len(delays)} changes, less was used than before the limit was set."
    return "\n".join(lines) + "\n"


def main() -> None:
    with RedisServer() as redis, TemporaryDirectory() as folder:
        file = Path(folder, "limits.toml")
        file.write_text(LIMITS)
        environment = {"STORE": redis.url, "LIMITS": str(file)}
        options = ("--workers", str(WORKERS), "--no-access-log")
        with Uvicorn("tests.support.live_app:app", *options, env=environment) as server:
            written = page(*asyncio.run(measure(server.port, redis.url)))
    (ROOT / "benchmarks" / "results" / "live.md").write_text(written)
    print(written)


if __name__ == "__main__":
    main()
