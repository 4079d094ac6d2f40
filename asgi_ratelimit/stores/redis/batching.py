"""Group commit: while one batch is under way the next one gathers, and goes as soon as that is back.

It knows nothing of what it carries. No timer, and no added wait where nothing is under way: an item goes with those who
come in the same turn of the event loop, or, where the last one travelled alone, at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Generic, TypeAlias, TypeVar

T = TypeVar("T")
R = TypeVar("R")

Entry: TypeAlias = "tuple[T, asyncio.Future[R], float]"
"""An item, what will be its result, and when it was submitted."""

Tell: TypeAlias = "Callable[[Sequence[R] | Exception], None]"
"""Is told the results of a batch, or why there are none."""

LARGEST = 128
"""Items in one batch, at the most. Where more wait, the far end works on them while results are handed out."""


class GroupCommit(Generic[T, R]):
    """Carries items in batches to ``send``, one batch at a time, on one event loop.

    ``send`` is given the items of a batch, the time (of the loop) at which the first of them was submitted, and whom to
    tell, once: one result for each item, in their order, or an exception for all of them. A result that is an exception
    is raised to its caller. If ``send`` raises, or too many or too few results are told, all of its batch fails, and
    nobody else: then ``without`` is asked for the result of each whose caller still waits, or raises what that is to
    be told. A caller that is cancelled neither stops a batch nor hurts its neighbours: what is not sent yet is
    dropped. Of items that have waited for a batch ``known`` is asked for the results that can be told by now, and those
    are not sent: ``None`` for each that has none, or for all of them. Unless it ``hurries``, an item always waits for
    those who come in the same turn, whoever went before.
    """

    def __init__(
        self,
        send: Callable[[list[T], float, Tell[R]], None],
        without: Callable[[T, Exception], R],
        known: Callable[[Sequence[T]], Sequence[R | None] | None],
        close: Callable[[], Awaitable[None]],
        *,
        hurries: bool = True,
    ) -> None:
        self._send = send
        self._without = without
        self._known = known
        self._close = close
        self._hurries = hurries
        self._loop = asyncio.get_running_loop()
        self._waiting: list[Entry[T, R]] = []
        self._under_way: list[Entry[T, R]] | None = None
        self._start: asyncio.Handle | None = None
        self._was_alone = False
        self._ended: asyncio.Future[None] | None = None

    def submit(self, item: T) -> asyncio.Future[R]:
        """The result of ``item``, once its batch is back. Cancelling it is safe."""
        result: asyncio.Future[R] = asyncio.Future(loop=self._loop)  # create_future is the same, a frame further away
        self._waiting.append((item, result, self._loop.time()))
        if self._under_way is None and self._start is None:
            if self._was_alone:
                self._send_next()
            else:
                self._start = self._loop.call_soon(self._send_next)  # with those who come at the same time
        return result

    def submit_all(self, items: Iterable[T]) -> list[asyncio.Future[R]]:
        """The result of each item; they travel together as far as there is room."""
        self.expect_more()
        return [self.submit(item) for item in items]

    def expect_more(self) -> None:
        """Whoever is submitted next goes with those who come in the same turn of the event loop."""
        self._was_alone = False

    async def aclose(self, error: Exception) -> None:
        """Fail what is still waiting with ``error``, see the batch under way to its end, then call ``close``."""
        waiting, self._waiting = self._waiting, []
        self._fail(waiting, error)
        if self._under_way is not None:
            self._ended = self._ended or self._loop.create_future()
            await asyncio.wait([self._ended])
        await self._close()

    def _send_next(self, have_waited: bool = False) -> None:
        self._start = None
        while self._waiting:
            batch = [entry for entry in self._waiting[:LARGEST] if not entry[1].done()]
            del self._waiting[:LARGEST]
            if batch and have_waited:
                batch = self._not_known(batch)
            if batch:
                self._was_alone = self._hurries and len(batch) == 1
                self._send_batch(batch)
                return

    def _not_known(self, batch: list[Entry[T, R]]) -> list[Entry[T, R]]:
        """Those of a batch whose result nobody knows yet; the others are told theirs."""
        try:
            results = self._known([item for item, _, _ in batch])
        except Exception:  # noqa: BLE001  # whatever it was, nobody may be left waiting for it
            results = None
        if results is None:
            return batch
        left = []
        for entry, result in zip(batch, results):
            if result is None:
                left.append(entry)
            else:
                entry[1].set_result(result)
        return left

    def _send_batch(self, batch: list[Entry[T, R]]) -> None:
        self._under_way = batch
        try:
            self._send([item for item, _, _ in batch], batch[0][2], partial(self._tell, batch))
        except Exception as error:  # noqa: BLE001  # whatever it was, it must reach those who wait
            self._tell(batch, error)

    def _tell(self, batch: list[Entry[T, R]], results: Sequence[R] | Exception) -> None:
        if self._under_way is not batch:
            return
        self._under_way = None
        if isinstance(results, Exception):
            self._fail(batch, results)
        elif len(results) != len(batch):
            self._fail(batch, ValueError(f"{len(results)} results came for {len(batch)} items"))
        else:
            for (_, waiter, _), result in zip(batch, results):
                if waiter.done():
                    continue
                if isinstance(result, Exception):
                    waiter.set_exception(result)
                else:
                    waiter.set_result(result)
        self._send_next(have_waited=True)
        if self._under_way is None and self._ended is not None:
            self._ended.set_result(None)
            self._ended = None

    def _fail(self, batch: Sequence[Entry[T, R]], error: Exception) -> None:
        for item, waiter, _ in batch:
            if waiter.done():
                continue
            try:
                waiter.set_result(self._without(item, error))
            except Exception as raised:  # noqa: BLE001  # as above
                waiter.set_exception(raised)
