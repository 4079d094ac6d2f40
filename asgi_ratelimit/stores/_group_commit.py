"""Group commit: while one batch is under way the next one gathers, and goes as soon as that is back.

It knows nothing of what it carries. No timer, and no added wait where nothing is under way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeAlias, TypeVar

T = TypeVar("T")
R = TypeVar("R")

Entry: TypeAlias = "tuple[T, asyncio.Future[R], float]"
"""An item, what will be its result, and when it was submitted."""

LARGEST = 256
"""Items in one batch, at the most: a larger one makes everybody behind it wait, and gains nothing more."""


class GroupCommit(Generic[T, R]):
    """Carries items in batches to ``send``, one batch at a time, on one event loop.

    ``send`` takes the items of a batch, and the time (of the loop) at which the first of them was submitted, and
    returns one result for each, in their order; one that is an exception is raised to its caller. If it raises, or
    returns too many or too few, all of its batch is told so, and nobody else. It runs in a task of its own, so a caller
    that is cancelled neither stops it nor hurts its neighbours: what is not sent yet is dropped.
    """

    def __init__(
        self, send: Callable[[list[T], float], Awaitable[Sequence[R]]], close: Callable[[], Awaitable[None]]
    ) -> None:
        self._send = send
        self._close = close
        self._loop = asyncio.get_running_loop()
        self._waiting: list[Entry[T, R]] = []
        self._sender: asyncio.Task[None] | None = None

    def submit(self, item: T) -> asyncio.Future[R]:
        """The result of ``item``, once its batch is back. Cancelling it is safe."""
        result: asyncio.Future[R] = self._loop.create_future()
        self._waiting.append((item, result, self._loop.time()))
        if self._sender is None or self._sender.done():
            self._sender = self._loop.create_task(self._send_all())
        return result

    async def aclose(self, error: Exception) -> None:
        """Fail what is still waiting with ``error``, see the batch under way to its end, then call ``close``."""
        waiting, self._waiting = self._waiting, []
        _fail(waiting, error)
        if self._sender is not None:
            await asyncio.wait([self._sender])
        await self._close()

    async def _send_all(self) -> None:
        try:
            while self._waiting:
                batch = [entry for entry in self._waiting[:LARGEST] if not entry[1].done()]
                del self._waiting[:LARGEST]
                if batch:
                    await self._send_batch(batch)
        finally:
            self._sender = None
            _cancel(self._waiting)  # there are some only where this task was cancelled
            self._waiting = []

    async def _send_batch(self, batch: list[Entry[T, R]]) -> None:
        try:
            results = await self._send([item for item, _, _ in batch], batch[0][2])
            answered = list(zip(batch, results, strict=True))
        except asyncio.CancelledError:
            _cancel(batch)
            raise
        except Exception as error:  # noqa: BLE001  # whatever it was, it must reach those who wait
            _fail(batch, error)
        else:
            for (_, waiter, _), result in answered:
                _tell(waiter, result)


def _tell(waiter: asyncio.Future[R], result: R) -> None:
    if waiter.done():
        return
    if isinstance(result, Exception):
        waiter.set_exception(result)
    else:
        waiter.set_result(result)


def _fail(batch: Sequence[Entry[T, R]], error: Exception) -> None:
    for _, waiter, _ in batch:
        if not waiter.done():
            waiter.set_exception(error)


def _cancel(batch: Sequence[Entry[T, R]]) -> None:
    for _, waiter, _ in batch:
        waiter.cancel()
