"""What is said where no Redis is there for the tests, and that a killed run leaves none behind."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import redis_server, redis_servers
from tests.support.redis_cluster import wait_until
from tests.support.redis_server import find_redis
from tests.support.server import HOST, ROOT

# A program that runs until it is killed.
HOLDS_ONE = """
from tests.support.redis_server import RedisServer
with RedisServer() as server:
    {}
    print(server.port, flush=True)
    input()
"""


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has nothing but what a test installs."""
    monkeypatch.delenv("REDIS_SERVER", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(redis_server, "find_spec", lambda name: None)
    for module in (redis_server, redis_servers):
        monkeypatch.setattr(module, "DOWNLOADED", tmp_path / "downloaded")


def install(path: Path, version: str) -> str:
    """A program that says that it is this version."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{version} sha=00000000:0 malloc=libc bits=64'\n", "utf-8")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("version", ["Redis server v=6.0.16", "something else", None])
def test_no_server_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str | None) -> None:
    """The error says what was seen, and what to install."""
    chosen = tmp_path / "chosen"
    if version:
        install(chosen, version)
    monkeypatch.setenv("REDIS_SERVER", str(chosen))
    with pytest.raises(RuntimeError, match=re.escape(f"{chosen}") + ".*") as raised:
        find_redis()
    assert "scripts/servers redis-8.2" in str(raised.value)


@pytest.mark.parametrize("paused", [False, True])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_run_leaves_no_server_behind(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals, paused: bool
) -> None:
    """However it was killed, even one that was frozen."""
    monkeypatch.undo()
    program = HOLDS_ONE.format("server.pause()" if paused else "pass")
    with subprocess.Popen(
        (sys.executable, "-c", program), cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        port = int(run.stdout.readline())
        assert accepts(port)
        run.send_signal(number)
    wait_until(lambda: not accepts(port))


def accepts(port: int) -> bool:
    """Whether something listens there."""
    try:
        with socket.create_connection((HOST, port), timeout=5):
            return True
    except ConnectionRefusedError:
        return False
    except ConnectionResetError:  # it is just being killed
        return True
