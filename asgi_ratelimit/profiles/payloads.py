"""The bodies of answers as JSON: one object, or a stream of server-sent events. No bytes raise an exception.

Every function takes time that grows no faster than the length of the body.
No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

MAX_CONTENT = 16 * 1024 * 1024
"""The most bytes to which a compressed body is decoded."""

_WINDOW_BITS = {"gzip": 31, "x-gzip": 31, "deflate": 15}  # of zlib


class Answer(Protocol):
    """What a ``settle`` function receives: an answer with its body as it was transferred, as far as it was read.

    The names of ``headers`` are in lower case.
    """

    @property
    def status_code(self) -> int: ...
    @property
    def headers(self) -> Mapping[str, str]: ...
    @property
    def body(self) -> bytes: ...


def objects(answer: Answer, mention: bytes) -> Iterator[dict[str, Any]]:
    """The JSON objects of an answer that mention a text, the last one first: the body, or its events."""
    content = decoded(answer.body, answer.headers.get("content-encoding", ""))
    texts = [content] if content.lstrip()[:1] == b"{" else _events(content, mention)
    for text in texts:
        parsed = json_object(text)
        if parsed is not None:
            yield parsed


def decoded(body: bytes, encoding: str, most: int = MAX_CONTENT) -> bytes:
    """A body without its content encoding, as far as it has come, and ``most`` bytes of it.

    A body that does not match the encoding stays unchanged: some clients have already decoded it, and others know
    encodings that the standard library does not.
    """
    window_bits = _WINDOW_BITS.get(encoding.strip().lower())
    if window_bits is None:
        return body
    try:
        return zlib.decompressobj(window_bits).decompress(body, most)
    except zlib.error:
        return body


def json_object(text: bytes | str) -> dict[str, Any] | None:
    """A JSON object, or ``None`` for anything else."""
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) else None


def _events(content: bytes, mention: bytes) -> Iterator[bytes]:
    """The data of the server-sent events that mention a text, the last one first."""
    content = content.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    end = len(content)
    while (at := content.rfind(mention, 0, end)) >= 0:
        start = max(content.rfind(b"\n\n", 0, at), 0)
        blank = content.find(b"\n\n", at, end)
        event = content[start : end if blank < 0 else blank]
        yield b"\n".join(line[5:] for line in event.split(b"\n") if line.startswith(b"data:"))
        end = start
