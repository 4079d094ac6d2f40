"""The event loops of asyncio: the running one, and what goes on there for a store although its caller is gone."""

from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop, get_running_loop
from collections.abc import Callable
from typing import Any, TypeVar

from ..errors import ConfigurationError

F = TypeVar("F", bound="asyncio.Future[Any]")
T = TypeVar("T")

LONGEST = 1.0
"""How many seconds a caller that is cancelled, or one that closes a store, waits at most for what is given back."""


def running_loop(what: str, instead: str) -> AbstractEventLoop:
    """The event loop of asyncio that runs here.

    Raises ``ConfigurationError`` if there is none; the error says ``what`` needs one, and what to do ``instead``.
    """
    try:
        return get_running_loop()
    except RuntimeError:
        raise ConfigurationError(
            f"{what} needs asyncio, and no event loop of it is running; under trio, {instead}"
        ) from None


def _loop_of_store() -> AbstractEventLoop:
    instead = "call a SyncLimiter in a thread: await trio.to_thread.run_sync(limiter.rate_limit, key)"
    return running_loop("a store on Redis with async", instead)


class ByLoop(dict[AbstractEventLoop, T]):
    """What each event loop of asyncio has of its own, as loops cannot share connections.

    Both methods raise ``ConfigurationError`` where no loop runs.
    """

    def of_running(self, make: Callable[[], T]) -> T:
        """That of the running event loop, which is made at its first use; what closed event loops had is dropped."""
        loop = _loop_of_store()
        if loop not in self:
            for each in list(self):  # another thread may add one meanwhile
                if each.is_closed():
                    self.pop(each, None)
            self[loop] = make()
        return self[loop]

    async def aclose(self) -> None:
        """Close that of the running event loop, if there is one; the next use makes another one."""
        own: Any = self.pop(_loop_of_store(), None)
        if own is not None:
            await own.aclose()


_under_way: dict[asyncio.Future[Any], int] = {}
"""What goes on although its caller may be gone, and the ``id`` of its owner.

An event loop holds only weak references to its tasks.
"""


def keep(owner: object, future: F) -> F:
    """Keep a task or future of a store, or of a part of it, until it is done; returns it. Nobody need see its error."""
    _under_way[future] = id(owner)
    future.add_done_callback(_forget)
    return future


def _forget(future: asyncio.Future[Any]) -> None:
    _under_way.pop(future, None)
    if not future.cancelled():
        future.exception()


async def see_all_through(owner: object, longest: float = LONGEST) -> None:
    """Wait until all is done that ``keep`` has for an owner on this event loop, and what follows, but not for long."""
    try:
        loop, identity = asyncio.get_running_loop(), id(owner)
    except RuntimeError:  # another one runs
        return
    until = loop.time() + longest
    while pending := [each for each, of in list(_under_way.items()) if of == identity and each.get_loop() is loop]:
        if loop.time() >= until:
            return
        await asyncio.wait(pending, timeout=until - loop.time())
