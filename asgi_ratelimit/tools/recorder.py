"""A hook that records decisions into a file, which ``asgi-ratelimit what-if`` and ``suggest`` read."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from threading import Lock
from typing import Any
from weakref import finalize

from ..argument_errors import checked_flag
from ..buckets import DEFAULT_NAME, as_bytes, digest
from ..clock import Clock, SystemClock
from ..errors import ConfigurationError
from ..hooks import Event
from ..quota_text import RESERVED_NAMES
from .logs import decision_line, first_line, request_line

MAX_BYTES = 100_000_000
"""The default most bytes of a recording, and of the one before it."""

LEAST_BYTES = 64 * 1024

CHECKED_LINES = 64
"""The number of lines between two checks of the size of the file."""

_MARK = "asgi_ratelimit_recorded"
"""The entry in a scope that says which recorders have a line of its request."""


class Recorder:
    """Records every decision of a middleware, limiter or transport: ``hooks=[Recorder("requests.jsonl")]``.

    A line has the time, the rule, its key and cost, the outcome, and the method and path of the request. Keys are
    hashed with ``salt``. It is random by default, so the same client is recognised only within one process: give all
    processes the same salt. ``show_keys`` records keys as they are. When a file is larger than ``max_bytes``, it gets
    the suffix ``.1``, and replaces an older one. Several processes may write one file.

    Each line is written at once; that costs about 20 microseconds. Raises ``ConfigurationError`` for invalid arguments,
    and ``OSError`` for a path that cannot be written.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        salt: str | bytes | None = None,
        show_keys: bool = False,
        max_bytes: int = MAX_BYTES,
        clock: Clock | None = None,
    ) -> None:
        if not isinstance(max_bytes, int) or max_bytes < LEAST_BYTES:
            raise ConfigurationError(
                f"max_bytes must be a whole number of at least {LEAST_BYTES}, not {max_bytes!r}: "
                f"Recorder(path, max_bytes={MAX_BYTES})"
            )
        if salt is not None and (not isinstance(salt, (str, bytes)) or not salt):
            raise ConfigurationError(
                f'salt must be a text or bytes, and not empty, not {salt!r}: Recorder(path, salt=os.environ["SALT"])'
            )
        checked_flag("show_keys", show_keys)
        self._clock = clock or SystemClock()
        self._salt = b"" if show_keys else as_bytes(salt) if isinstance(salt, str) else salt or secrets.token_bytes(16)
        salt_id = digest(self._salt)[:8] if self._salt else ""
        self._file = _RecordingFile(Path(path), max_bytes, first_line(salt_id))
        self._finalizer = finalize(self, self._file.close)

    def __repr__(self) -> str:
        return f"Recorder({str(self._file.path)!r})"

    def __call__(self, event: Event) -> None:
        """Record a decision: a line for each of its rules."""
        decision = event.decision
        time_us = decision.now_us or self._clock.now_us()
        is_first, method, path = self._request_of(event)
        by_rule = {
            charge.name or DEFAULT_NAME: charge
            for charge in decision.charges
            if charge.quota.name not in RESERVED_NAMES
        }
        for rule, charge in by_rule.items():
            key = self._shown(charge.key)
            line = decision_line(time_us, key, rule, charge.cost, event.result, method, path, is_first=is_first)
            self._file.write(line)
            is_first = False

    def request(self, key: str, method: str, path: str) -> None:
        """Record a request that no rule has decided on."""
        self._file.write(request_line(self._clock.now_us(), self._shown(key), method, path))

    def close(self) -> None:
        """Close the file; a later record opens it again."""
        self._file.close()

    def _request_of(self, event: Event) -> tuple[bool, str, str]:
        """Whether a decision is the first one on its request, and the method and path, both empty outside requests."""
        if event.request is None:
            return True, "", ""
        scope: Any = event.request.scope
        recorders = scope.setdefault(_MARK, set())
        is_first = id(self) not in recorders
        recorders.add(id(self))
        return is_first, scope.get("method", "GET"), scope["path"]

    def _shown(self, key: str) -> str:
        return digest(self._salt + as_bytes(key))[:16] if self._salt else key


class _RecordingFile:
    """Appends lines to a file, each in one write, so that lines of several threads and processes do not mix."""

    def __init__(self, path: Path, max_bytes: int, first: str) -> None:
        self.path = path
        self._max_bytes = max_bytes
        self._first = first
        self._lock = Lock()
        self._lines = 0
        self._file = self._open()

    def write(self, line: str) -> None:
        """Write a line."""
        data = f"{line}\n".encode("utf-8", "replace")
        with self._lock:
            if self._file < 0:
                self._file = self._open()
            os.write(self._file, data)
            self._lines += 1
            if self._lines % CHECKED_LINES == 0 and os.fstat(self._file).st_size >= self._max_bytes:
                self._rotate()

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1

    def _rotate(self) -> None:
        """Make this file the older one, unless another process has done so."""
        is_current = self.path.exists() and self.path.stat().st_ino == os.fstat(self._file).st_ino
        os.close(self._file)
        self._file = -1
        if is_current:
            self.path.replace(self.path.with_name(f"{self.path.name}.1"))
        self._file = self._open()

    def _open(self) -> int:
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(file, f"{self._first}\n".encode())
        return file
