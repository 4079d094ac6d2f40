"""Child processes that listen on a loopback port: what tests and the demo need to talk to something real."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from secrets import randbelow
from tempfile import TemporaryDirectory
from typing import Self

from tests.support import orphans

HOST = "127.0.0.1"
ROOT = Path(__file__).resolve().parents[2]
START_WITHIN = 120.0
STOP_WITHIN = 5.0


class Server(ABC):
    """A child process on a loopback port of its own, in a folder of its own; a context manager that runs it.

    ``start`` returns once the process answers, and raises ``RuntimeError`` with its output if it does not. ``env`` adds
    to the environment of this process.
    """

    def __init__(self, env: Mapping[str, str] | None = None) -> None:
        self.port = free_port()
        self._env = env or {}
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def command(self) -> Sequence[str]:
        """The command line of the process."""

    @abstractmethod
    def greets(self, connection: socket.socket) -> bool:
        """Whether what has accepted this connection is ready for work."""

    def start(self) -> None:
        """Start the process, and wait until it answers."""
        command = self.command()
        self._folder = TemporaryDirectory()
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                cwd=self._folder.name,
                env={**os.environ, **self._env},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        orphans.watch(self._process.pid)
        try:
            self._wait_until_it_answers()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End the process, by force if it does not go in time; one that is not running stays so."""
        if self._process is None:
            return
        self._signal(signal.SIGTERM)
        self.resume()
        try:
            self._process.wait(STOP_WITHIN)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
            self._process.wait()
        orphans.forget(self._process.pid)
        self._process = None
        self._folder.cleanup()

    def kill(self) -> None:
        """End the process as a crash would, at once."""
        self._signal(signal.SIGKILL)
        self.stop()

    def pause(self) -> None:
        """Freeze the process: it accepts connections, and answers nothing."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a frozen process go on."""
        self._signal(signal.SIGCONT)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self.stop()

    @property
    def _log(self) -> Path:
        return Path(self._folder.name, "output")

    def _signal(self, number: signal.Signals) -> None:
        """Send a signal to the process and all its children."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, number)

    def _wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + START_WITHIN
        while not self._answers():
            if self._process is None or self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{self.command()} does not answer:\n{self._log.read_text(errors='replace')}")
            time.sleep(0.01)

    def _answers(self) -> bool:
        try:
            with socket.create_connection((HOST, self.port), timeout=1) as connection:
                return self.greets(connection)
        except OSError:
            return False


class Uvicorn(Server):
    """A uvicorn that serves the ASGI app of an import string, which is looked up in ``app_dir``.

    ``options`` adds to uvicorn's command line.
    """

    def __init__(self, app: str, *options: str, env: Mapping[str, str] | None = None, app_dir: Path = ROOT) -> None:
        super().__init__(env)
        self._app = app
        self._options = options
        self._app_dir = app_dir

    @property
    def url(self) -> str:
        """Where it serves."""
        return f"http://{HOST}:{self.port}"

    def command(self) -> Sequence[str]:
        """The command line of uvicorn."""
        where = ("--host", HOST, "--port", str(self.port), "--app-dir", str(self._app_dir))
        return (sys.executable, "-m", "uvicorn", self._app, *where, *self._options)

    def greets(self, connection: socket.socket) -> bool:
        """Whether it speaks HTTP: it refuses nonsense by itself, before any app is asked."""
        connection.sendall(b"nonsense\r\n\r\n")
        return connection.recv(5) == b"HTTP/"


def free_port() -> int:
    """A loopback port that nothing listens on at this moment, and that no connection out of here is given."""
    while True:
        port = 15_000 + randbelow(7_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind((HOST, port))
            return port
