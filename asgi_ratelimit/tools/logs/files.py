"""The files of a log: plain, compressed by gzip, or the standard input."""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ...errors import ConfigurationError

STDIN = "-"
BLOCK = 1 << 18
"""Bytes that are read at a time."""

LONGEST = 1 << 20
"""The most bytes of a line; a longer one is not a request, and is not kept."""

_GZIP = b"\x1f\x8b"
_MARK = b"\xef\xbb\xbf"
_OTHERS = {
    b"\x28\xb5\x2f\xfd": ("compressed by zstd", "zstd -dc"),
    b"\xfd7zXZ": ("compressed by xz", "xz -dc"),
    b"BZh": ("compressed by bzip2", "bzip2 -dc"),
    b"PK\x03\x04": ("an archive of zip", "unzip -p"),
    b"\xff\xfe": ("text in UTF-16", "iconv -f UTF-16 -t UTF-8"),
    b"\xfe\xff": ("text in UTF-16", "iconv -f UTF-16 -t UTF-8"),
}
"""The kind of a file that starts with these bytes, and the program that turns it into lines."""


class LogFile:
    """A file of a log, whose lines can be read once; ``-`` is the standard input.

    ``size`` is its length in bytes, or 0 if that is unknown. Raises ``OSError`` if there is no such file.
    """

    def __init__(self, name: str) -> None:
        self.name = "the standard input" if name == STDIN else name
        self._path = None if name == STDIN else Path(name)
        self.size = 0 if self._path is None else self._path.stat().st_size

    def blocks(self, advance: Callable[[int], None]) -> Iterator[str]:
        """Its lines, many of them in one text, each with its end.

        ``advance`` is called with the bytes that have been read since the last call. Raises ``OSError`` for a file that
        cannot be read, or is compressed and damaged, and ``ConfigurationError`` for one that is compressed in another
        way than with gzip.
        """
        file: Any = sys.stdin.buffer if self._path is None else self._path.open("rb")
        at = 0
        with file:
            for lines in self._lines(self._unpacked(file)):
                yield _as_text(lines)
                if self.size:
                    now = file.tell()
                    advance(now - at)
                    at = now
        advance(max(self.size - at, 0))

    def _lines(self, file: Any) -> Iterator[bytes]:
        """Its bytes in blocks that end with a line; a line that is too long becomes empty."""
        rest, is_cut = b"", False
        try:
            while block := file.read(BLOCK):
                lines, end, new_rest = block.rpartition(b"\n")
                if end:
                    yield (b"" if is_cut else rest) + lines[lines.find(b"\n") if is_cut else 0 :] + end
                    rest, is_cut = new_rest, False
                elif len(rest) > LONGEST:
                    rest, is_cut = b"", True
                elif not is_cut:
                    rest += new_rest
        except (zlib.error, EOFError, gzip.BadGzipFile) as error:
            raise OSError(f"{self.name} is damaged: {error}") from error
        if rest or is_cut:
            yield rest + b"\n"

    def _unpacked(self, file: Any) -> Any:
        """The file to read: decompressed, and without a byte order mark."""
        start = file.peek(6)[:6]
        for sign, (what, program) in _OTHERS.items():
            if start.startswith(sign):
                shown = self.name if self._path else "LOG"
                raise ConfigurationError(f"{self.name} is {what}: {program} {shown} | asgi-ratelimit what-if - ...")
        if start.startswith(_MARK):
            file.read(len(_MARK))
        return gzip.GzipFile(fileobj=file) if start.startswith(_GZIP) else file


def _as_text(lines: bytes) -> str:
    text = lines.decode("utf-8", "replace")
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text
