"""``PacedMiddleware``: requests of an ``aiohttp.ClientSession`` that wait for their slots."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Self, Unpack

from ..errors import shows_use, to_install
from ..outbound.paced_transport import PacedTransport, host
from ..quota_text import QuotaLike
from .translation import ForwardedAnswer, ForwardedRequest, PacingOptions, require_options

try:
    from aiohttp import ClientHandlerType, ClientRequest, ClientResponse, StreamReader
    from aiohttp.payload import BytesPayload
except ImportError as error:
    raise ImportError(f"PacedMiddleware needs aiohttp 3.12: {to_install('aiohttp')}") from error


class PacedMiddleware:
    """A middleware for ``aiohttp.ClientSession`` whose requests keep to ``quota``.

    ``ClientSession(middlewares=[PacedMiddleware("20/s")])``. The options are those of ``PacedTransport``; ``key`` and
    ``cost`` are values, or functions of the ``ClientRequest``. A redirect costs as much as a request. The ``total``
    timeout of aiohttp, five minutes by default, includes the wait for a slot. Several sessions may share one
    middleware. If it opened its store, close it with ``aclose``, or use it in ``async with``. Raises ``QuotaError`` and
    ``ConfigurationError``; a request raises ``PaceTimeout``.
    """

    @shows_use('PacedMiddleware("20/s burst 5")')
    def __init__(self, quota: QuotaLike, *, key: Any = host, cost: Any = 1, **options: Unpack[PacingOptions]) -> None:
        require_options("PacedMiddleware", options)
        self._transport = PacedTransport(_Inner(), quota, key=key, cost=cost, **options)

    def __repr__(self) -> str:
        return repr(self._transport).replace("PacedTransport(aiohttp, ", "PacedMiddleware(", 1)

    async def __call__(self, request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        """Send a request at its slot."""
        is_whole = not request.body or isinstance(request.body, BytesPayload)
        forwarded = ForwardedRequest(request, partial(handler, request), b"" if is_whole else None)
        answer: ForwardedAnswer = await self._transport.handle_async_request(forwarded)
        response: ClientResponse
        response, stream = answer.released()
        if stream is not None:
            _watch(response, stream)
        return response

    async def aclose(self) -> None:
        """Close the store if it was opened here."""
        await self._transport.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class _Inner:
    """The handlers of a session, as a transport."""

    def __repr__(self) -> str:
        return "aiohttp"

    async def handle_async_request(self, forwarded: ForwardedRequest) -> ForwardedAnswer:
        response: ClientResponse = await forwarded.send()
        headers = {name.lower(): value for name, value in response.headers.items()}
        return ForwardedAnswer(response, response.status, headers, is_closed=response.content.at_eof())

    async def aclose(self) -> None: ...


def _watch(response: ClientResponse, stream: Any) -> None:
    """Report to the stream what is read of the response, and when the response ends or is closed."""
    content = _Content(response.content, stream)
    if not stream.settles:  # a small answer that is dropped unread keeps no place
        response.content.on_eof(content.close_soon)
    response.content = content  # type: ignore[assignment]  # it has the same methods
    itself = weakref.ref(response)  # an attribute that refers to its owner keeps it until a garbage collection
    response.close = lambda: _end(itself, "close", content)  # type: ignore[method-assign]
    response.release = lambda: _end(itself, "release", content)  # type: ignore[method-assign]
    response.wait_for_close = lambda: _wait(itself, content)  # type: ignore[method-assign]


def _end(itself: weakref.ref[ClientResponse], method: str, content: _Content) -> Any:
    response = itself()
    content.close_soon()
    return None if response is None else getattr(type(response), method)(response)


async def _wait(itself: weakref.ref[ClientResponse], content: _Content) -> None:
    if (response := itself()) is not None:
        await type(response).wait_for_close(response)
    if content.closing is not None:
        await asyncio.shield(content.closing)


class _Content:
    """The content of a response, which reports what is read of it, and when it ends."""

    def __init__(self, content: Any, stream: Any) -> None:
        self._content = content
        self._stream = stream
        self.closing: asyncio.Task[None] | None = None

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._content, name)
        return partial(self._read, attribute) if name in _READERS else attribute

    # For aiohttp it is a StreamReader, so that it can be the body of another request.
    __class__: Any = property(lambda _: StreamReader)
    # Its iterators, which read by the methods of the object that they are given.
    __aiter__: Any = StreamReader.__aiter__
    iter_chunked: Any = StreamReader.iter_chunked
    iter_any: Any = StreamReader.iter_any
    iter_chunks: Any = StreamReader.iter_chunks

    async def _read(self, method: Callable[..., Awaitable[Any]], *args: Any, **options: Any) -> Any:
        chunk = await method(*args, **options)
        self._stream.saw(chunk[0] if isinstance(chunk, tuple) else chunk)
        if self._content.at_eof():
            await self._stream.aclose()
        return chunk

    def close_soon(self) -> None:
        """Close the body from code without ``async``; outside a loop, the garbage collector closes it."""
        with contextlib.suppress(RuntimeError):
            self.closing = self.closing or asyncio.get_running_loop().create_task(self._stream.aclose())


# The methods of aiohttp's content that return bytes.
_READERS = {"read", "readany", "readchunk", "readline", "readuntil", "readexactly"}
