"""The processes of the subjects, seen from the program that measures them."""

from __future__ import annotations

import json
import select
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from tempfile import TemporaryFile
from typing import Any

from tests.support.redis_server import RedisServer
from tests.support.server import ROOT

from ..subject import PEERS, Quota, Subject
from .redis_stats import RedisStats

WITHIN = 60.0
"""Seconds to wait for an answer; a subject that takes longer has failed."""


class Failed(Exception):
    """A subject broke, or did not answer in time; raised by ``Runner``."""


class Runner:
    """One subject's process, and its Redis, if any."""

    def __init__(self, subject: Subject, redis: RedisServer | None) -> None:
        self.subject = subject
        self._server = redis
        self.redis = RedisStats(redis) if redis else None
        self._start()

    def use(self, quota: Quota, shape: str = "") -> None:
        """Build an app with this quota, in a shape of use if one is named, and empty the Redis, in a process that runs.

        Raises ``Failed``.
        """
        self._clean()
        self.call("app", limit=quota.limit, period=quota.period, shape=shape)

    def listen(self, quota: Quota, shape: str = "") -> int:
        """Serve such an app by uvicorn and return its port. Raises ``Failed``."""
        self._clean()
        port: int = self.call("listen", limit=quota.limit, period=quota.period, shape=shape)["port"]
        return port

    def call(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Run a command and return its answer. Raises ``Failed``."""
        self.send(do, **arguments)
        return self.receive()

    def send(self, do: str, **arguments: Any) -> None:
        """Start a command; ``receive`` waits for its answer. Raises ``Failed``."""
        assert self._process.stdin
        try:
            self._process.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise Failed(self._last_words()) from error

    def receive(self) -> dict[str, Any]:
        """Wait for the answer to the command that was sent. Raises ``Failed``."""
        out = self._process.stdout
        assert out
        if not select.select([out], [], [], WITHIN)[0]:
            self._process.kill()
            raise Failed(f"no answer within {WITHIN:.0f} s")
        line = out.readline()
        if not line:
            raise Failed(self._last_words())
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise Failed(answer["error"])
        return answer

    def restart(self) -> None:
        """Replace the process by a new one."""
        self.stop()
        self._start()

    def stop(self) -> None:
        self._process.kill()
        self._process.communicate()
        self._log.close()

    def _start(self) -> None:
        self._log = TemporaryFile()  # noqa: SIM115  # it is closed by stop
        subject = self.subject
        self._process = subprocess.Popen(
            (sys.executable, "-m", "benchmarks.processes.worker", subject.peer.name, subject.where, subject.url),
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )

    def _clean(self) -> None:
        if self._process.poll() is not None:
            self.restart()
        if self._server:
            self._server.flush()

    def _last_words(self) -> str:
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return lines[-1][:120] if lines else "the process ended without a message"


@contextmanager
def runners(only: Sequence[str]) -> Iterator[list[Runner]]:
    """Start each peer over each of its stores, with a Redis of its own where it needs one.

    ``only`` names the peers to start; if it is empty, all start.
    """
    with ExitStack() as stack:
        started: list[Runner] = []
        for name in chosen(only):
            for where in PEERS[name].stores:
                server = stack.enter_context(RedisServer()) if where == "redis" else None
                started.append(Runner(Subject(PEERS[name], where, server.url if server else ""), server))
                stack.callback(started[-1].stop)
        yield started


def chosen(only: Sequence[str]) -> list[str]:
    """The peers to measure, with the bare apps that they stand on."""
    wanted = {*only, "bare"} | {PEERS[name].base for name in only}
    return [name for name in PEERS if not only or name in wanted]
