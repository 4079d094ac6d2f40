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

from tests.redis_server import RedisServer
from tests.server import ROOT

from .redis_stats import RedisStats
from .subject import PEERS, Quota, Subject, Where, base_of, working

WITHIN = 60.0
"""Seconds for an answer; a subject that takes longer has failed."""


class Failed(Exception):
    """A subject broke, or did not answer in time; by ``Runner.ask``."""


class Runner:
    """One subject's process, and its Redis, if any. ``error`` says what it broke with, for good."""

    def __init__(self, subject: Subject, quota: Quota, redis: RedisServer | None) -> None:
        self.subject = subject
        self.redis = RedisStats(redis) if redis else None
        self.error = ""
        self._log = TemporaryFile()  # noqa: SIM115  # it is closed by stop
        names = (subject.peer, subject.where, subject.url, str(quota.limit), quota.period)
        self._process = subprocess.Popen(
            (sys.executable, "-m", "benchmarks.worker", *names),
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )

    def wait_until_ready(self) -> None:
        try:
            self._read()
        except Failed as failure:
            self.error = str(failure)

    def send(self, do: str, **arguments: Any) -> None:
        """Start a command, whose answer ``receive`` waits for. Raises ``Failed``."""
        if self.error:
            raise Failed(self.error)
        assert self._process.stdin
        try:
            self._process.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            self.error = self._last_words()
            raise Failed(self.error) from error

    def receive(self) -> dict[str, Any]:
        try:
            return self._read()
        except Failed as failure:
            self.error = str(failure)
            raise

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """The answer to a command. Raises ``Failed``."""
        self.send(do, **arguments)
        return self.receive()

    def stop(self) -> None:
        self._process.kill()
        self._process.communicate()
        self._log.close()

    def _read(self) -> dict[str, Any]:
        out = self._process.stdout
        assert out
        if not select.select([out], [], [], WITHIN)[0]:
            self._process.kill()
            raise Failed(f"no answer within {WITHIN:.0f} s")
        line = out.readline()
        if not line:
            raise Failed(self._last_words())
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _last_words(self) -> str:
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return lines[-1][:120] if lines else "it ended without a word"


@contextmanager
def subjects(only: Sequence[str]) -> Iterator[list[tuple[Subject, RedisServer | None]]]:
    """Every peer over each of its stores, each Redis one with a server of its own; all that ``only`` names, if any."""
    with ExitStack() as stack:
        found: list[tuple[Subject, RedisServer | None]] = []
        for name in chosen(only):
            for where in _stores(name):
                server = stack.enter_context(RedisServer()) if where == "redis" else None
                found.append((Subject(name, where, server.url if server else ""), server))
        yield found


def chosen(only: Sequence[str]) -> list[str]:
    """The peers to measure, with the bare apps that they stand on."""
    if not only:
        return list(PEERS)
    wanted = {*only, "bare"} | {base_of(name) for name in only}
    return [name for name in PEERS if name in wanted]


def _stores(name: str) -> Sequence[Where]:
    found = working(name)
    return found.STORES if found else ("memory", "redis")


@contextmanager
def runners(found: Sequence[tuple[Subject, RedisServer | None]], quota: Quota) -> Iterator[list[Runner]]:
    """All of them started, with empty Redises."""
    with ExitStack() as stack:
        running = []
        for subject, server in found:
            if server:
                server.flush()
            runner = Runner(subject, quota, server)
            stack.callback(runner.stop)
            running.append(runner)
        for runner in running:
            runner.wait_until_ready()
        yield running
