"""Requests that can be sent again: only those whose second attempt carries all of the body; and unwanted answers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from typing import Any, ClassVar

import pytest

from asgi_ratelimit.outbound.exchange import Discard, can_be_sent_again

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


class Broken:
    """An answer whose body breaks off when it is read."""

    headers: ClassVar = {"content-length": "5"}
    is_closed = closed = False

    def iter_raw(self) -> Iterator[bytes]:
        yield b"a"
        raise OSError("reset")

    async def aiter_raw(self) -> AsyncIterator[bytes]:
        yield b"a"
        raise OSError("reset")

    def close(self) -> None:
        self.closed = True

    async def aclose(self) -> None:
        self.closed = True


def test_an_unwanted_answer_is_closed_even_if_its_body_breaks_off() -> None:
    """Its connection must not leak, and the request is sent again as any other."""
    answers = Broken(), Broken()
    Discard(answers[0]).in_thread()
    asyncio.run(Discard(answers[1]).in_task())
    assert [answer.closed for answer in answers] == [True, True]


class Endless:
    """A body without end in parts of one size, which counts those that are read of it."""

    def __init__(self, size: int) -> None:
        self.size, self.read = size, 0

    def __iter__(self) -> Iterator[bytes]:
        while True:
            self.read += 1
            yield bytes(self.size)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for part in self:
            yield part


@pytest.mark.parametrize(("size", "parts"), [(20_000, 4), (1, 16)], ids=["64 KB", "byte by byte"])
def test_an_unwanted_answer_is_not_read_without_end(module: Any, size: int, parts: int) -> None:
    """Whatever it says of its length, however small it was compressed, and however slowly it comes."""
    bodies = Endless(size), Endless(size)
    headers = {"content-length": "10", "content-encoding": "gzip"}

    class Stream(module.SyncByteStream, module.AsyncByteStream):  # type: ignore[misc, name-defined]  # of either module
        def __init__(self, body: Endless) -> None:
            self.body = body

        def __iter__(self) -> Iterator[bytes]:
            return iter(self.body)

        def __aiter__(self) -> AsyncIterator[bytes]:
            return aiter(self.body)

    answers = [module.Response(429, headers=headers, stream=Stream(body)) for body in bodies]
    Discard(answers[0]).in_thread()
    asyncio.run(Discard(answers[1]).in_task())
    assert [answer.is_closed for answer in answers] == [True, True]
    assert [body.read for body in bodies] == [parts, parts]
