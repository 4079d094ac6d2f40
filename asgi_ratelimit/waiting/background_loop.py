"""One event loop in a background thread for each process, on which synchronous callers reach asynchronous stores."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from threading import Lock, Thread
from typing import Any, TypeVar

T = TypeVar("T")


class _Background:
    """The loop, started at first use. Its thread is a daemon: it never keeps a process from ending."""

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


def _start_anew() -> None:
    """A forked child has the parent's loop, but not the thread that ran it."""
    global _background
    _background = _Background()


os.register_at_fork(after_in_child=_start_anew)


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that may wait, from a thread that may block."""
    future = asyncio.run_coroutine_threadsafe(coroutine, _background.loop())
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def run_in_place(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never waits, with no event loop at all."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]  # a StopIteration does not know its type
    coroutine.close()
    raise RuntimeError("a store that says it is in_process has waited for something")
