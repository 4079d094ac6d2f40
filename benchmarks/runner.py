"""The subjects' processes, as seen from the program that measures them."""

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

from .redis_stats import RedisStats
from .subject import PEERS, Quota, Subject

WITHIN = 60.0
"""Seconds for an answer; a subject that takes longer has failed."""


class Failed(Exception):
    """A subject broke, or did not answer in time; raised by ``Runner``."""


class Runner:
    """One subject's process, and its Redis, if any."""

    def __init__(self, subject: Subject, redis: RedisServer | None) -> None:
        self.subject = subject
        self._server = redis
        self.redis = RedisStats(redis) if redis else None
        self._start()

    def use(self, quota: Quota) -> None:
        """An app with this quota and an empty Redis, in a process that lives. Raises ``Failed``."""
        self._clean()
        self.ask("app", limit=quota.limit, period=quota.period)

    def listen(self, quota: Quota) -> int:
        """The same behind uvicorn: its port. Raises ``Failed``."""
        self._clean()
        port: int = self.ask("listen", limit=quota.limit, period=quota.period)["port"]
        return port

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """The answer to a command. Raises ``Failed``."""
        self.send(do, **arguments)
        return self.receive()

    def send(self, do: str, **arguments: Any) -> None:
        """Start a command, whose answer ``receive`` waits for. Raises ``Failed``."""
        assert self._process.stdin
        try:
            self._process.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise Failed(self._last_words()) from error

    def receive(self) -> dict[str, Any]:
        """The answer to the command that was sent. Raises ``Failed``."""
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

    def stop(self) -> None:
        self._process.kill()
        self._process.communicate()
        self._log.close()

    def _start(self) -> None:
        self._log = TemporaryFile()  # noqa: SIM115  # it is closed by stop
        self._process = subprocess.Popen(
            (sys.executable, "-m", "benchmarks.worker", self.subject.peer.name, self.subject.where, self.subject.url),
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )

    def _clean(self) -> None:
        if self._process.poll() is not None:
            self.stop()
            self._start()
        if self._server:
            self._server.flush()

    def _last_words(self) -> str:
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return lines[-1][:120] if lines else "it ended without a word"


@contextmanager
def runners(only: Sequence[str]) -> Iterator[list[Runner]]:
    """Every peer over each of its stores, each Redis one with a server of its own; all that ``only`` names, if any."""
    with ExitStack() as stack:
        found: list[Runner] = []
        for name in chosen(only):
            for where in PEERS[name].stores:
                server = stack.enter_context(RedisServer()) if where == "redis" else None
                found.append(Runner(Subject(PEERS[name], where, server.url if server else ""), server))
                stack.callback(found[-1].stop)
        yield found


def chosen(only: Sequence[str]) -> list[str]:
    """The peers to measure, with the bare apps that they stand on."""
    wanted = {*only, "bare"} | {PEERS[name].base for name in only}
    return [name for name in PEERS if not only or name in wanted]
