"""Group commit: while one batch is under way the next one gathers, and is sent as soon as the first is back.

It knows nothing about Redis. There is no timer that waits for more items, and no added wait when nothing is under way:
an item goes with the others of the same iteration of the event loop or, if the last batch was a single item, at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

from ..event_loops import keep

T = TypeVar("T")
R = TypeVar("R")

Entry: TypeAlias = "tuple[T, asyncio.Future[R], float, int]"
"""An item, the future of its result, the time of the event loop at which it was submitted, and its weight."""

MAX_ITEMS = 128
"""The most items in one batch."""


class GroupCommit(Generic[T, R]):
    """Sends items in batches, one batch at a time, on one event loop.

    ``send(items)`` returns one result for each item, in order; a result that is an exception fails only its own item.
    If it raises, exactly this batch fails. So does a batch that is not back ``timeout`` seconds after its first item
    was submitted, whatever ``send`` is doing then: it is cancelled, and nobody waits for its end. ``timed_out`` makes
    the exception. ``instead(item, error)`` is what the caller of an item gets that failed: a result, or an exception.
    A batch has at most ``MAX_ITEMS``, of a total weight of ``most_weight``, or one that is heavier.

    Cancelling a caller neither stops a batch nor affects the others: an item that has not been sent is dropped.
    """

    def __init__(
        self,
        send: Callable[[list[T]], Coroutine[Any, Any, Sequence[R | Exception]]],
        *,
        timeout: float,
        timed_out: Callable[[], Exception],
        instead: Callable[[T, BaseException], R | BaseException] = lambda item, error: error,
        weight_of: Callable[[T], int] = lambda item: 1,
        most_weight: int = MAX_ITEMS,
    ) -> None:
        self._send = send
        self._timeout = timeout
        self._timed_out = timed_out
        self._instead = instead
        self._weight_of = weight_of
        self._most_weight = most_weight
        self._loop = asyncio.get_running_loop()
        self._waiting: list[Entry[T, R]] = []
        self._under_way: list[Entry[T, R]] | None = None
        self._scheduled: asyncio.Handle | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._idle: asyncio.Future[None] | None = None
        self._last_was_single = False

    def submit(self, item: T) -> asyncio.Future[R]:
        """The result of ``item``, once its batch is back. Cancelling it is safe."""
        result: asyncio.Future[R] = self._loop.create_future()
        self._waiting.append((item, result, self._loop.time(), self._weight_of(item)))
        if self._under_way is None and self._scheduled is None:
            if self._last_was_single:
                self._send_next()
            else:  # with the others of this iteration of the loop
                self._scheduled = self._loop.call_soon(self._send_next)
        return result

    def expect_several(self) -> None:
        """Send what is submitted next with the others of this iteration of the loop."""
        self._last_was_single = False

    async def drain(self) -> None:
        """Return when nothing is waiting or under way."""
        while self._waiting or self._under_way is not None:
            self._idle = self._idle or self._loop.create_future()
            await asyncio.wait([self._idle])

    def _send_next(self) -> None:
        """Send the next batch of items whose callers still wait."""
        self._scheduled = None
        batch = self._next_batch()
        if batch:
            self._under_way, self._last_was_single = batch, len(batch) == 1
            task = keep(self, self._loop.create_task(self._run(batch)))
            self._deadline = self._loop.call_at(batch[0][2] + self._timeout, self._expire, batch, task)
        elif self._idle is not None:
            self._idle.set_result(None)
            self._idle = None

    def _next_batch(self) -> list[Entry[T, R]]:
        batch: list[Entry[T, R]] = []
        weight = taken = 0
        for entry in self._waiting:
            if not entry[1].done():
                weight += entry[3]
                if batch and (weight > self._most_weight or len(batch) == MAX_ITEMS):
                    break
                batch.append(entry)
            taken += 1
        del self._waiting[:taken]
        return batch

    async def _run(self, batch: list[Entry[T, R]]) -> None:
        """Send a batch, and end it, unless it has expired meanwhile."""
        results: Sequence[R | Exception] | BaseException
        try:
            results = await self._send([entry[0] for entry in batch])
        except GeneratorExit:  # the event loop is gone, and nobody waits
            raise
        except BaseException as error:  # noqa: BLE001  # whatever it is, it must reach those who wait
            results = error
        self._end(batch, results)

    def _expire(self, batch: list[Entry[T, R]], task: asyncio.Task[Any]) -> None:
        """Fail a batch whose deadline is over. Its task may swallow the cancellation; nobody waits for it."""
        task.cancel()
        self._end(batch, self._timed_out())

    def _end(self, batch: list[Entry[T, R]], results: Sequence[R | Exception] | BaseException) -> None:
        if self._under_way is not batch:  # it has expired
            return
        self._under_way = None
        if self._deadline is not None:
            self._deadline.cancel()
        if not isinstance(results, BaseException) and len(results) != len(batch):
            results = ValueError(f"{len(results)} results for {len(batch)} items")
        for at, (item, future, _, _) in enumerate(batch):
            if future.done():
                continue
            result = results if isinstance(results, BaseException) else results[at]
            if isinstance(result, BaseException):
                result = self._instead(item, result)
            if isinstance(result, asyncio.CancelledError):
                future.cancel()
            elif isinstance(result, BaseException):
                future.set_exception(result)
            else:
                future.set_result(result)
        self._send_next()
