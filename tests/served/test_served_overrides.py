"""Four workers on Redis, whose limits change under load: by the command line, and by their file."""

from __future__ import annotations

import asyncio
import re
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from tests.support.overriding import until
from tests.support.redis_server import RedisServer
from tests.support.server import ROOT, Uvicorn

pytestmark = pytest.mark.anyio

WORKERS = 4
PAUSE = 0.02
"""Seconds between two requests of a task."""
LIMITS = """\
[[rules]]
name = "all"
path = "/"
quota = "{limit}/400 days fixed"

[[rules]]
name = "steady"
path = "/steady"
quota = "{limit}/400 days fixed"
"""


@dataclass
class Site:
    """The server, the file of its limits, and the URL of its store."""

    server: Uvicorn
    file: Path
    store: str

    async def command(self, *arguments: str) -> str:
        """What ``asgi-ratelimit`` prints for the store, as a process of its own, which must succeed."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "asgi_ratelimit", *arguments, "--store", self.store),
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,  # it may warn that no worker has published its counts yet
        )
        printed, errors = await process.communicate()
        assert process.returncode == 0, errors.decode()
        return printed.decode()


@pytest.fixture(scope="module")
def started(redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Uvicorn, Path, str]]:
    """The server with its workers, on an empty Redis."""
    redis_server.flush()
    file = tmp_path_factory.mktemp("limits") / "limits.toml"
    file.write_text(LIMITS.format(limit=100_000))
    environment = {"STORE": redis_server.url, "LIMITS": str(file)}
    with Uvicorn("tests.support.live_app:app", "--workers", str(WORKERS), env=environment) as server:
        yield server, file, redis_server.url


@pytest.fixture
def site(started: tuple[Uvicorn, Path, str]) -> Site:
    return Site(*started)


@dataclass
class Load:
    """Requests to one path, one after another in several tasks: what each worker said last of the limit."""

    path: str
    latest: dict[str, str] = field(default_factory=dict)
    statuses: Counter[int] = field(default_factory=Counter)
    used: int = 0
    is_over: bool = False

    async def send(self, client: httpx.AsyncClient) -> None:
        """One request over a connection of its own, which any worker may accept."""
        answer = await client.get(self.path, headers={"connection": "close"})
        self.statuses[answer.status_code] += 1
        limit = answer.headers["ratelimit-policy"].partition("q=")[2].partition(";")[0]
        remaining = answer.headers["ratelimit"].partition("r=")[2].partition(";")[0]
        self.latest[answer.text], self.used = limit, int(limit) - int(remaining)

    async def go_on(self, client: httpx.AsyncClient) -> None:
        while not self.is_over:
            await self.send(client)
            await asyncio.sleep(PAUSE)

    def all_say(self, limit: str) -> bool:
        """Whether each worker has answered with this limit."""
        return len(self.latest) == WORKERS and set(self.latest.values()) == {limit}

    async def until_all_say(self, limit: str) -> None:
        self.latest.clear()
        await until(lambda: self.all_say(limit))


@asynccontextmanager
async def load_on(site: Site, path: str) -> AsyncIterator[Load]:
    """Four tasks that send requests within the block."""
    load = Load(path)
    async with httpx.AsyncClient(base_url=site.server.url, timeout=30, trust_env=False) as client:
        tasks = [asyncio.create_task(load.go_on(client)) for _ in range(4)]
        try:
            yield load
        finally:
            load.is_over = True
            await asyncio.gather(*tasks)
        assert set(load.statuses) == {200}


async def test_a_command_changes_the_limit_of_all_workers(site: Site) -> None:
    """Nobody's use is forgotten, no request fails, and ``unset`` brings the file's limit back."""
    async with load_on(site, "/") as load:
        await load.until_all_say("100000")
        used_before = load.statuses[200]
        printed = await site.command("set", "all", "200000/400 days fixed", "--for", "1h", "--by", "alice")
        assert printed == "'all' is 200000/400 days fixed for 1 h\n"
        await load.until_all_say("200000")
        assert load.used >= used_before >= WORKERS
        assert await site.command("unset", "all", "--by", "bob") == "'all' is no longer overridden\n"
        await load.until_all_say("100000")
        assert load.used >= used_before
    await until_logged(site, "all: 100000 per 400 days fixed -> 200000/400 days fixed for 3[56]\\d\\d s, by alice\n")
    await until_logged(site, "all: 200000/400 days fixed -> 100000 per 400 days fixed, by bob\n")


async def until_logged(site: Site, line: str) -> None:
    """Return when each worker has logged a line that matches, once."""
    await until(lambda: len(re.findall(line, site.server.output())) == WORKERS)


async def test_a_broken_file_changes_nothing_and_a_good_one_does(site: Site) -> None:
    """Each worker says where it is broken, once, and what has changed; nobody's use is forgotten."""
    async with load_on(site, "/steady") as load:
        await load.until_all_say("100000")
        site.file.write_text(LIMITS.format(limit="many"))
        error = f"{site.file}, rules[1].quota (all): 'many/400 days fixed': 'many' is not a limit"
        error = re.escape(error)
        await until_logged(site, error)
        await load.until_all_say("100000")
        used_before = load.statuses[200]
        site.file.write_text(LIMITS.format(limit=300_000))
        await load.until_all_say("300000")
        assert load.used >= used_before >= WORKERS
        site.file.write_text(LIMITS.format(limit=100_000))
        await load.until_all_say("100000")
    await until_logged(site, "steady: 100000 per 400 days fixed -> 300000 per 400 days fixed\n")
    await until_logged(site, error)
