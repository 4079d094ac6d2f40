"""One event loop in a background thread of each process, on which synchronous callers use asynchronous stores.

A forked child forgets it, and everything that waits in its parent: those tasks and threads do not exist in it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from threading import Lock, Thread
from typing import Any, Protocol, TypeVar
from weakref import WeakSet

from ..errors import ConfigurationError

T = TypeVar("T")


class _Background:
    """The event loop, started at first use. Its thread is a daemon, so it never keeps a process from ending."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                Thread(target=self._loop.run_forever, name="asgi_ratelimit", daemon=True).start()
            return self._loop


_background = _Background()


def replace() -> None:
    """Forget the loop: a forked child inherits it, but not the thread that runs it."""
    global _background
    _background = _Background()


def loop() -> asyncio.AbstractEventLoop:
    """The background loop of this process."""
    return _background.loop()


def require_other_thread(coroutine: Coroutine[Any, Any, Any] | None = None) -> None:
    """Raise ``ConfigurationError``, and close the coroutine, on the background loop, whose thread must not block."""
    if asyncio._get_running_loop() is _background.loop():
        if coroutine is not None:
            coroutine.close()
        raise ConfigurationError(
            "a call without async, here on the event loop that makes such calls, would wait for itself: in an "
            "asynchronous hook, make the call with async, or in a thread, await asyncio.to_thread(call)"
        )


def call_soon(function: Callable[..., object], *args: Any) -> None:
    """Call a function on the background loop."""
    _background.loop().call_soon_threadsafe(function, *args)


def start(coroutine: Coroutine[Any, Any, T]) -> Future[T]:
    """Start a coroutine on the background loop without waiting for it."""
    return asyncio.run_coroutine_threadsafe(coroutine, _background.loop())


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the background loop, block this thread until it ends, and return its result.

    Raises ``ConfigurationError`` on that loop.
    """
    require_other_thread(coroutine)
    future = asyncio.run_coroutine_threadsafe(coroutine, _background.loop())
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def run_in_place(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits, without an event loop, and return its result."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]  # StopIteration is not generic
    coroutine.close()
    raise RuntimeError("the store declares in_process=True, but one of its methods waited")


class Resettable(Protocol):
    """An object that can return to its initial state."""

    def reset(self) -> None:
        """Forget all callers, and replace all locks."""
        ...


_registered: WeakSet[Resettable] = WeakSet()


def reset_in_child(resettable: Resettable) -> None:
    """Call ``resettable.reset()`` in every child process that is forked from now on."""
    _registered.add(resettable)


def _reset() -> None:
    replace()  # first, because the objects that are reset may use it at once
    for resettable in list(_registered):
        resettable.reset()


os.register_at_fork(after_in_child=_reset)
