"""Requests that can be sent again: only those whose second attempt carries all of the body."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from typing import Any

from asgi_ratelimit.outbound.exchange import can_be_sent_again

URL = "http://service/"


def pipe() -> Any:
    """A file that can be read once."""
    reader, writer = os.pipe()
    os.write(writer, b"precious data")
    os.close(writer)
    return os.fdopen(reader, "rb")


class Once:
    """A stream of a program's own, which can be read once."""

    def __iter__(self) -> Iterator[bytes]:
        yield b"data"

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield b"data"


def parts() -> Iterator[bytes]:
    yield b"data"


def test_bodies_that_can_be_read_once(module: Any) -> None:
    """Generators, streams of the program's own, pipes, and multipart bodies with one of those."""
    with pipe() as file:
        for arguments in (
            {"content": parts()},
            {"content": file},
            {"stream": Once()},
            {"files": {"file": ("a.txt", file)}},
            {"files": {"first": b"data", "file": ("a.txt", file)}},
        ):
            assert not can_be_sent_again(module.Request("POST", URL, **arguments)), arguments
