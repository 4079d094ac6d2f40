"""Only tests with the mark ``redis`` find a Redis, so that ``-m redis`` runs all that touch one."""

from __future__ import annotations

import subprocess
import sys

import pytest

from asgi_ratelimit import Store
from tests.support.server import ROOT


def paths_found() -> list[str]:
    """The server that a process finds which this test starts."""
    command = (sys.executable, "-m", "tests.support.redis_server")
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.split()


def test_without_the_mark_no_process_finds_a_redis() -> None:
    """Its name is an error that tells what is missing."""
    assert paths_found() == []


@pytest.mark.redis
def test_with_the_mark_every_process_does() -> None:
    """It is one path."""
    assert len(paths_found()) == 1


@pytest.mark.anyio
async def test_a_store_has_the_mark(store: Store, request: pytest.FixtureRequest) -> None:
    """Of the two kinds of store, that on Redis."""
    marked = request.node.get_closest_marker("redis") is not None
    assert marked == (type(store).__name__ == "RedisStore")


def test_names_have_no_addresses(request: pytest.FixtureRequest) -> None:
    """Processes that share a run must agree on them, and so must a run and one that repeats what failed."""
    assert [item.nodeid for item in request.session.items if " at 0x" in item.nodeid] == []  # ids=named helps
