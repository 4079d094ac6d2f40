"""One exchange with a service: a request is sent, perhaps again; its answer is discarded, read for limits, or watched.

To send, to discard and to read are steps of a flow, in a task or a thread.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

from ..profiles.costs import decoded
from ..quotas import SECOND_US
from ..waiting.drivers import Flow, run_async, run_sync

# The most bytes of a body that are read for the limits that stand in it, as they come, compressed or not, and whatever
# they say of their number. A larger body says nothing of limits.
SMALL_BODY = 65_536

# A body of which more comes after so long is passed on, as one that trickles.
SLOW_BODY_US = 1 * SECOND_US

# The least bytes of a body that are kept to settle its request, half from its beginning and half from its end.
MAX_BODY = 1_048_576

OnClose: TypeAlias = Callable[[], None]
SettleBody: TypeAlias = Callable[[bytes], Flow[None]]


# Requests


@dataclass(slots=True)
class Send:
    """Send a request; the result is the answer."""

    transport: Any
    request: Any

    async def in_task(self) -> Any:
        return await self.transport.handle_async_request(self.request)

    def in_thread(self) -> Any:
        return self.transport.handle_request(self.request)


def can_be_sent_again(request: Any) -> bool:
    """Whether the whole body of a request of httpx or httpx2 is at hand, so that a second attempt carries all of it.

    That includes a multipart body whose files are in memory or seekable.
    """
    with suppress(Exception):  # the error of a body that is not in memory; each of them has its own
        return isinstance(request.content, bytes)
    fields = getattr(request.stream, "fields", None)
    if not isinstance(fields, list):
        return type(request.stream).__name__ == "ByteStream"
    files = [getattr(field, "file", b"") for field in fields]
    with suppress(Exception):  # the program may give any object as a file
        return all(isinstance(file, (str, bytes)) or file.seekable() for file in files)
    return False


@dataclass(slots=True)
class Discard:
    """Close an unwanted answer, and so its connection: a server may send its body without end."""

    response: Any

    async def in_task(self) -> None:
        await self.response.aclose()

    def in_thread(self) -> None:
        self.response.close()


# Answers that are read for limits


@dataclass(slots=True)
class ReadBody:
    """Read the body of an answer; the result is the value of its JSON. The caller can read the body again.

    A part that comes more than a second after the beginning is the last one that is read, so that an answer that
    trickles is passed on.
    """

    response: Any
    now_us: Callable[[], float]

    async def in_task(self) -> Any:
        body, rest, end_us, failure = bytearray(), aiter(self.response.stream), self.now_us() + SLOW_BODY_US, None
        try:
            async for part in rest:
                body += part
                if len(body) > SMALL_BODY or self.now_us() > end_us:
                    break
        except Exception as error:  # noqa: BLE001  # each client has its own
            failure = error
        return self._keep(bytes(body), rest, failure)

    def in_thread(self) -> Any:
        body, rest, end_us, failure = bytearray(), iter(self.response.stream), self.now_us() + SLOW_BODY_US, None
        try:
            for part in rest:
                body += part
                if len(body) > SMALL_BODY or self.now_us() > end_us:
                    break
        except Exception as error:  # noqa: BLE001  # each client has its own
            failure = error
        return self._keep(bytes(body), rest, failure)

    def _keep(self, body: bytes, rest: Any, failure: Exception | None) -> Any:
        response, stream = self.response, self.response.stream
        response.stream = _for_clients(_KeptBody, stream.__class__)(body, rest, failure, stream)
        return json_of(body, response.headers.get("content-encoding", ""))


def json_of(body: bytes, encoding: str = "") -> Any:
    """The value of the JSON of an answer with this body, or with this beginning of it; ``None`` if it is not JSON."""
    try:
        return json.loads(decoded(body[: SMALL_BODY + 1], encoding, SMALL_BODY))
    except (ValueError, RecursionError):  # ValueError also for a body of which this is only the beginning
        return None


class _KeptBody:
    """A body whose beginning was read; ``rest`` has what comes after that, unless there is a ``failure`` instead."""

    def __init__(self, body: bytes, rest: Any, failure: Exception | None, stream: Any) -> None:
        self._body, self._rest, self._failure, self._stream = body, rest, failure, stream

    def __iter__(self) -> Iterator[bytes]:
        yield self._body
        if self._failure is not None:
            raise self._failure
        yield from self._rest

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._body
        if self._failure is not None:
            raise self._failure
        async for part in self._rest:
            yield part

    def close(self) -> None:
        """Close it."""
        self._stream.close()

    async def aclose(self) -> None:
        """Close it."""
        await self._stream.aclose()


# Answers that the caller reads


def watched(stream: Any, on_close: OnClose, settle: SettleBody | None) -> Any:
    """A body like ``stream`` that calls ``on_close`` once, when it is closed or garbage collected.

    When it is closed, ``settle`` is run after that, with the bytes that were read, 2 MB at most.
    """
    return _for_clients(_WatchedBody, stream.__class__)(stream, on_close, settle)


class _WatchedBody:
    def __init__(self, stream: Any, on_close: OnClose, settle: SettleBody | None) -> None:
        self._stream = stream
        self._on_close: OnClose | None = on_close
        self._settle = settle
        self._read_bytes = bytearray()

    @property
    def settles(self) -> bool:
        """Whether the bytes that are read of the body are still to be settled when it is closed."""
        return self._settle is not None

    def __iter__(self) -> Iterator[bytes]:
        for part in self._stream:
            self.saw(part)
            yield part

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._stream:
            self.saw(part)
            yield part

    def saw(self, part: bytes) -> None:
        """Keep a part that was read, if it is to be settled.

        The middle of a long body is left out, because its cost stands at its beginning or its end.
        """
        if self._settle is not None:
            self._read_bytes += part
            if len(self._read_bytes) > 2 * MAX_BODY:
                del self._read_bytes[MAX_BODY // 2 : -MAX_BODY // 2]

    def close(self) -> None:
        """Close the body."""
        try:
            self._stream.close()
        finally:
            run_sync(self._ended())

    async def aclose(self) -> None:
        """Close the body."""
        try:
            await self._stream.aclose()
        finally:
            await run_async(self._ended())

    def __del__(self) -> None:
        on_close, self._on_close = self._on_close, None
        if on_close is not None:
            on_close()

    def _ended(self) -> Flow[None]:
        """Report that the body is closed, and settle it, the first time."""
        settle, self._settle = self._settle, None
        self.__del__()
        if settle is not None:
            yield from settle(bytes(self._read_bytes))


@lru_cache(maxsize=100)
def _for_clients(kind: type, stream: type) -> type:
    """The same kind of body for the client of a stream: clients require an instance of base classes of their own."""
    bases = [base for base in stream.__mro__ if base.__name__ in ("SyncByteStream", "AsyncByteStream")]
    return type(kind.__name__, (kind, *bases), {})
