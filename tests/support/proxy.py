"""A TCP proxy in front of a server: it delays, loses, repeats or mangles what the server answers, and cuts lines."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Self

from tests.support.server import HOST


class Proxy:
    """Hands on what comes on a port of its own to ``target``, another port, and what that answers back.

    ``delay`` is how many seconds an answer is held back; ``mangle`` turns what the server sends into what arrives, be
    it nothing. ``connections`` counts those that were ever accepted. A context manager that runs it.
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

    def cut(self) -> None:
        """Cut all lines, in the middle of whatever is said."""
        for writer in self._open:
            writer.transport.abort()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, HOST, 0)
        return self

    async def __aexit__(self, *failure: object) -> None:
        self._server.close()
        served = list(self._open.values())
        self.cut()
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
            hand_on = _hand_on(reader, there_writer, self._request), _hand_on(there_reader, writer, self._answer)
            await asyncio.gather(*hand_on)
        del self._open[writer]

    async def _request(self, data: bytes) -> bytes:
        return data

    async def _answer(self, data: bytes) -> bytes:
        if self.delay:
            await asyncio.sleep(self.delay)
        return self.mangle(data)


async def _hand_on(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, changed: Callable[[bytes], Awaitable[bytes]]
) -> None:
    """Until one end closes; then both are closed."""
    try:
        while data := await reader.read(1 << 20):
            writer.write(await changed(data))
    except OSError:
        pass
    writer.transport.abort()
