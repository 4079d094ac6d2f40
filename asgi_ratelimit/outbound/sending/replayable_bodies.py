"""Which requests can be sent again: those whose bodies are in memory, or in files that can be read twice."""

from __future__ import annotations

from typing import Any


def can_be_sent_again(request: Any) -> bool:
    """Whether the whole body of a request of httpx or httpx2 is at hand, so that a second attempt carries all of it."""
    try:
        return isinstance(request.content, bytes)
    except Exception:  # noqa: BLE001  # the error of a body that is not in memory; each of them has its own
        return _can_be_read_twice(request.stream)


def _can_be_read_twice(stream: Any) -> bool:
    """Whether a stream is one of bytes, says so, or is a multipart body whose files are in memory or seekable."""
    fields = getattr(stream, "fields", None)
    if not isinstance(fields, list):
        return type(stream).__name__ == "ByteStream" or getattr(stream, "can_be_read_twice", False) is True
    files = [getattr(field, "file", b"") for field in fields]
    return all(isinstance(file, (str, bytes)) or _is_seekable(file) for file in files)


def _is_seekable(file: Any) -> bool:
    try:
        return bool(file.seekable())
    except Exception:  # noqa: BLE001  # the program may give any object as a file
        return False
