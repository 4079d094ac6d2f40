"""A TCP proxy in front of a server: it delays, loses, repeats or mangles answers, and closes connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Self

from tests.support.server import HOST

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(handle: Handler, **options: Any) -> AsyncIterator[int]:
    """A port whose connections ``handle`` serves. Its clients must have gone at the end; nothing of them is left."""
    serving: list[asyncio.Future[None]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(handle(reader, writer))
        serving.append(task)
        await task

    async with await asyncio.start_server(serve, HOST, 0, **options) as server:
        yield server.sockets[0].getsockname()[1]
    await asyncio.gather(*serving, return_exceptions=True)


class Proxy:
    """Forwards what arrives on its own port to ``target``, another port, and the answers back.

    ``delay`` holds each answer back for so many seconds; ``mangle`` turns what the server sends into what arrives.
    ``connections`` counts all that were accepted. As a context manager, it runs the proxy.
    """

    def __init__(self, target: int) -> None:
        self.target = target
        self.delay = 0.0
        self.mangle: Callable[[bytes], bytes] = bytes
        self.connections = 0
        self._open: dict[asyncio.StreamWriter, asyncio.Task[None]] = {}

    @property
    def port(self) -> int:
        """Where it listens."""
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def url(self) -> str:
        """Where it listens, as the Redis that it stands in front of."""
        return f"redis://{HOST}:{self.port}"

    def disconnect(self) -> None:
        """Close all connections, whatever is in flight."""
        for writer in self._open:
            writer.transport.abort()

    def cut(self) -> None:
        """Let nothing through any more."""
        self.target = 1
        self.disconnect()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, HOST, 0)
        return self

    async def __aexit__(self, *failure: object) -> None:
        self._server.close()
        served = list(self._open.values())
        self.disconnect()
        await asyncio.gather(*served)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._open[writer] = task
        try:
            there_reader, there_writer = await asyncio.open_connection(HOST, self.target)
        except OSError:
            writer.transport.abort()
        else:
            directions = _forward(reader, there_writer, self._request), _forward(there_reader, writer, self._answer)
            await asyncio.gather(*directions)
        del self._open[writer]

    async def _request(self, data: bytes) -> bytes:
        return data

    async def _answer(self, data: bytes) -> bytes:
        if self.delay:
            await asyncio.sleep(self.delay)
        return self.mangle(data)


async def _forward(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, changed: Callable[[bytes], Awaitable[bytes]]
) -> None:
    """Until one end closes; then both are closed."""
    try:
        while data := await reader.read(1 << 20):
            writer.write(await changed(data))
    except OSError:
        pass
    writer.transport.abort()
