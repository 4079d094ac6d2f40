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

    ``size`` is its length in bytes, 0 where that is unknown. Raises ``OSError`` where it cannot be opened.
    """

    def __init__(self, name: str) -> None:
        self.name = "the standard input" if name == STDIN else name
        self._file: Any = sys.stdin.buffer if name == STDIN else Path(name).open("rb")  # noqa: SIM115
        self.size = 0 if name == STDIN else Path(name).stat().st_size

    def lines(self, advance: Callable[[int], None]) -> Iterator[str]:
        """Its lines without their ends; ``advance`` is called with the bytes that have been read since the last call.

        Raises ``OSError`` or ``EOFError`` for a file that is compressed and damaged.
        """
        file, at = self._file, 0
        try:
            unpacked = gzip.GzipFile(fileobj=file) if file.peek(2)[:2] == _GZIP else file
            for number, line in enumerate(io.TextIOWrapper(unpacked, "utf-8", "replace"), 1):
                yield line.rstrip("\r\n")
                if self.size and number % _STEP == 0:
                    now = file.tell()
                    advance(now - at)
                    at = now
            advance(max(self.size - at, 0))
        except zlib.error as error:
            raise OSError(f"{self.name}: {error}") from error
        finally:
            file.close()
