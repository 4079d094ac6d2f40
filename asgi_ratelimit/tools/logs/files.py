"""The files of a log: plain, compressed by gzip, or the standard input."""

from __future__ import annotations

import gzip
import io
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

STDIN = "-"
_GZIP = b"\x1f\x8b"
_STEP = 2000
"""Lines between two reports of progress."""


class LogFile:
    """A file of a log, whose lines can be read once; ``-`` is the standard input.

    ``size`` is its length in bytes, 0 where that is unknown. Raises ``OSError`` where there is no such file.
    """

    def __init__(self, name: str) -> None:
        self.name = "the standard input" if name == STDIN else name
        self._path = None if name == STDIN else Path(name)
        self.size = 0 if self._path is None else self._path.stat().st_size

    def lines(self, advance: Callable[[int], None]) -> Iterator[str]:
        """Its lines without their ends; ``advance`` is called with the bytes that have been read since the last call.

        Raises ``OSError`` or ``EOFError`` for a file that cannot be read, or is compressed and damaged.
        """
        file: Any = sys.stdin.buffer if self._path is None else self._path.open("rb")
        at = 0
        with file, io.TextIOWrapper(_unpacked(file), "utf-8", "replace") as text:
            try:
                for number, line in enumerate(text, 1):
                    yield line.rstrip("\r\n")
                    if self.size and number % _STEP == 0:
                        now = file.tell()
                        advance(now - at)
                        at = now
            except zlib.error as error:
                raise OSError(f"{self.name}: {error}") from error
        advance(max(self.size - at, 0))


def _unpacked(file: Any) -> Any:
    return gzip.GzipFile(fileobj=file) if file.peek(2)[:2] == _GZIP else file
