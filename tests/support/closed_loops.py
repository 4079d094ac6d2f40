"""Event loops that tests run and close by hand, for callers that wait behind others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from threading import Thread
from typing import Any

from asgi_ratelimit import PaceTimeout

Call = Callable[[], Coroutine[Any, Any, object]]

LONG = 15.0
"""Seconds that only a caller that hangs waits."""


class Loop:
    """An event loop whose tasks run only when the test says so."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.loop = loop or asyncio.new_event_loop()
        self.tasks: list[asyncio.Task[object]] = []

    def begin(self, call: Call, number: int = 1) -> None:
        """Let tasks make calls until they wait."""
        self.tasks += [self.loop.create_task(call()) for _ in range(number)]
        self.loop.run_until_complete(iterations())

    def close(self) -> None:
        """Close the loop; its tasks are still referred to."""
        self.loop.close()
        for task in self.tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]

    def finishes(self) -> bool:
        """Whether all calls end, long before hung ones would."""
        done, pending = self.loop.run_until_complete(asyncio.wait(self.tasks, timeout=LONG))
        for task in pending:
            task.cancel()
        self.loop.run_until_complete(asyncio.wait(self.tasks))
        assert all(type(task.exception()) in (type(None), PaceTimeout) for task in done)
        return not pending


async def iterations() -> None:
    """As many iterations of the event loop as a call needs until it waits."""
    for _ in range(20):
        await asyncio.sleep(0)


async def until(holds: Callable[[], object]) -> None:
    """Wait for a condition."""
    async with asyncio.timeout(LONG):
        while not holds():  # noqa: ASYNC110  # it is about other threads
            await asyncio.sleep(0.001)


def in_thread(call: Callable[[], object]) -> Thread:
    """Make a call in a thread."""
    thread = Thread(target=call, daemon=True)
    thread.start()
    return thread
