"""The connection of one event loop: a client of redis-py, opened at first use, and a new one after a failure."""

from __future__ import annotations

import asyncio
import socket
import threading
from asyncio import AbstractEventLoop, Future
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any

from .clients import Server

CLOSE_WITHIN = 2.0
"""The most seconds for which closing waits for Redis."""


class Connection:
    """The client of one event loop for one server, or for all nodes of a cluster; redis-py knows which slot is where.

    ``lookup`` looks up the names of the server's hosts before it is connected to.
    """

    def __init__(self, server: Server, lookup: NameLookup) -> None:
        self._server = server
        self._lookup = lookup
        self.client: Any = None
        """The client, once it is open."""
        self._opening: asyncio.Task[Any] | None = None
        self._tasks: set[asyncio.Future[Any]] = set()

    async def open(self) -> Any:
        """Open the client. A caller that gives up does not end that: another one may come to see it done."""
        if self._opening is None or self._opening.done():
            self._opening = self.keep(self._open())
        return await asyncio.shield(self._opening)

    async def _open(self) -> Any:
        if self._server.hosts:
            await self._lookup.start(asyncio.get_running_loop())
        client: Any = self._server.client()
        if self._server.is_cluster:
            await client.initialize()
        self.client = client
        return client

    def failed(self) -> None:
        """A call has failed: the next one opens another client.

        The other nodes of a cluster go on meanwhile, and it is asked in the background which slot is where.
        """
        if not self._server.is_cluster:
            self.drop()
        elif self.client is not None and (self._opening is None or self._opening.done()):
            self._opening = self.keep(self.client.nodes_manager.initialize())

    def drop(self) -> None:
        """Close the client in the background, as late answers may follow; the next call opens another one at once."""
        client, self.client, self._opening = self.client, None, None
        if client is not None:
            self.keep(client.aclose())

    async def aclose(self) -> None:
        """Close the client after its answers; a server that does not answer keeps nobody waiting."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_WITHIN)
        self.drop()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_WITHIN)

    def keep(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run ``work`` in a task of its own, whose error nobody has to see."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()


class NameLookup:
    """Looks up the hosts of a server in a thread of its own, one at a time, before a connection is tried.

    asyncio would look them up in the executor that the app uses too, and a slow name server would hold its threads.
    """

    def __init__(self, hosts: Sequence[str]) -> None:
        self._hosts = hosts
        self._lock = threading.Lock()
        self._waiting: list[tuple[AbstractEventLoop, Future[None]]] | None = None

    def start(self, loop: AbstractEventLoop) -> Future[None]:
        """Done when the lookup that is under way has ended, or the one that this starts; its outcome is no matter."""
        ended: Future[None] = loop.create_future()
        with self._lock:
            is_under_way = self._waiting is not None
            self._waiting = [*(self._waiting or ()), (loop, ended)]
        if not is_under_way:
            threading.Thread(target=self._look_up, name="asgi_ratelimit lookup", daemon=True).start()
        return ended

    def _look_up(self) -> None:
        try:
            for host in self._hosts:
                with suppress(OSError, UnicodeError):  # redis-py will say so
                    socket.getaddrinfo(host, None)
        finally:
            with self._lock:
                waiting, self._waiting = self._waiting or (), None
            for loop, ended in waiting:
                if not loop.is_closed():
                    loop.call_soon_threadsafe(_end, ended)


def _end(ended: Future[None]) -> None:
    if not ended.done():
        ended.set_result(None)
