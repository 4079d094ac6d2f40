"""Group commit: while one batch is in flight the next one gathers, and is sent as soon as the first is back.

It knows nothing about Redis. There is no timer, and no added wait when nothing is in flight: an item goes with the
others of the same iteration of the event loop or, if the last batch was a single item, at once. If there are many items
and the server answers quickly, half of them are in flight while the callers of the other half go on, so the server and
this process work side by side.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import repeat, takewhile
from operator import itemgetter
from typing import Generic, TypeAlias, TypeVar

from ...clock import monotonic_us

T = TypeVar("T")
R = TypeVar("R")

Entry: TypeAlias = "tuple[T, asyncio.Future[R], float, bool]"
"""An item, the future of its result, when it was submitted, and whether it is sent a second time."""

Finish: TypeAlias = "Callable[[Sequence[R] | Exception], None]"
"""Receives the results of a batch, or the reason why there are none."""

MAX_ITEMS = 128
"""The most items in one batch."""

ENOUGH = 32
"""With at least twice this many items, counting those that have just come back, one half may go ahead of the other."""

CALLER_US = 20.0
"""The least microseconds that a caller takes from its result until it submits again.

Of ``n`` callers, a batch of all serves ``n`` in ``flight + n * CALLER_US``, and halves serve ``n / 2`` in the longer of
``flight`` and ``n / 2 * CALLER_US``: so halves are quicker while ``flight < n * CALLER_US``."""


LASTING = 8
"""After so many batches in a row for which halves would have been quicker, they are used: a burst is over by then."""

_item_of = itemgetter(0)
_is_second = itemgetter(3)


def never(item: object, error: Exception) -> bool:
    """No item is sent a second time."""
    return False


class GroupCommit(Generic[T, R]):
    """Sends items in batches, one batch at a time, on one event loop.

    ``send(items, submitted, finish)`` sends a batch whose first item was submitted at that time of the loop. It calls
    ``finish`` once: with an exception for the whole batch, or with one result for each item, in order. A result that is
    an exception fails only its own item. With fewer results, the items without one are sent again, ahead of all others;
    in this way the server bounds the work in a batch. If ``send`` raises, or there are no results or too many, exactly
    this batch fails. Its items for which ``resends(item, error)`` is true are then sent a second time, by themselves
    and ahead of all others. For the rest, and the second time, ``fallback(item, error)`` returns a result for each
    caller that still waits, or raises.

    ``answer_early(items)`` is called for items that have waited for another batch. It returns, for each item, its
    result if that no longer needs the trip, or ``None``; or ``None`` for all. After a batch of a single item, the next
    item is sent at once if the group commit is ``eager``; otherwise it waits for the others of the same iteration of
    the event loop, as all other items do.

    ``now_us`` is a clock in microseconds that times the batches in flight.

    Cancelling a caller neither stops a batch nor affects the others: an item that has not been sent is dropped.
    """

    def __init__(
        self,
        send: Callable[[list[T], float, Finish[R]], None],
        fallback: Callable[[T, Exception], R],
        answer_early: Callable[[Sequence[T]], Sequence[R | None] | None],
        *,
        resends: Callable[[T, Exception], bool] = never,
        eager: bool = True,
        now_us: Callable[[], float] = monotonic_us,
    ) -> None:
        self._send = send
        self._fallback = fallback
        self._resends = resends
        self._answer_early = answer_early
        self._eager = eager
        self._now_us = now_us
        self._loop = asyncio.get_running_loop()
        self._waiting: list[Entry[T, R]] = []
        self._in_flight: list[Entry[T, R]] | None = None
        self._scheduled: asyncio.Handle | None = None
        self._last_was_single = False
        self._busy = 0
        self._in_halves = False
        self._sent_us = 0.0
        self._idle: asyncio.Future[None] | None = None

    def submit(self, item: T) -> asyncio.Future[R]:
        """The result of ``item``, once its batch is back. Cancelling it is safe."""
        result: asyncio.Future[R] = asyncio.Future(loop=self._loop)  # the same as create_future, with one call less
        self._waiting.append((item, result, self._loop.time(), False))
        if self._in_flight is None:
            if self._scheduled is None and not self._last_was_single:
                self._scheduled = self._loop.call_soon(self._send_next)
            elif self._scheduled is None or (self._in_halves and len(self._waiting) >= ENOUGH):
                self._send_next()
        return result

    def submit_all(self, items: Iterable[T]) -> list[asyncio.Future[R]]:
        """The result of each item; they share a batch as far as its bounds allow."""
        self.hold()
        return [self.submit(item) for item in items]

    def hold(self) -> None:
        """Let the next items wait for the others of the same iteration of the event loop."""
        self._last_was_single = self._in_halves = False

    async def drain(self) -> None:
        """Return when nothing is waiting or in flight."""
        while self._waiting or self._in_flight is not None:
            self._idle = self._idle or self._loop.create_future()
            await asyncio.wait([self._idle])

    def _send_next(self, have_waited: bool = False, most: int = MAX_ITEMS) -> None:
        """Send the next batch of items whose callers still wait."""
        self._scheduled = None
        while self._waiting and self._in_flight is None:
            count = len(list(takewhile(_is_second, self._waiting))) or most
            batch = [entry for entry in self._waiting[:count] if not entry[1].done()]
            del self._waiting[:count]
            if have_waited and batch:
                batch = self._without_early_answers(batch)
            if not batch:
                continue
            self._in_flight = batch
            self._last_was_single = self._eager and len(batch) == 1
            self._sent_us = self._now_us()
            finish = partial(self._finish, batch)
            try:
                self._send(list(map(_item_of, batch)), batch[0][2], finish)
            except Exception as error:  # noqa: BLE001  # whatever it is, it must reach those who wait
                finish(error)
        if self._idle is not None and self._in_flight is None:
            self._idle.set_result(None)
            self._idle = None

    def _without_early_answers(self, batch: list[Entry[T, R]]) -> list[Entry[T, R]]:
        """The entries that still need the trip; the others get their results."""
        try:
            results = self._answer_early(list(map(_item_of, batch)))
        except Exception:  # noqa: BLE001  # whatever it is, nobody may be left waiting
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

    def _finish(self, batch: list[Entry[T, R]], results: Sequence[R] | Exception) -> None:
        if self._in_flight is not batch:
            return
        self._in_flight = None
        if isinstance(results, Exception):
            self._fail(batch, repeat(results))
        elif not 0 < len(results) <= len(batch):
            self._fail(batch, repeat(ValueError(f"{len(results)} results for {len(batch)} items")))
        else:
            if len(results) < len(batch):
                self._waiting[:0] = batch[len(results) :]
            failed = []
            for entry, result in zip(batch, results):
                if isinstance(result, Exception):
                    failed.append(entry)
                elif not entry[1].done():
                    entry[1].set_result(result)
            if failed:
                self._fail(failed, [result for result in results if isinstance(result, Exception)])
        total = len(batch) + len(self._waiting)
        is_quicker = total >= 2 * ENOUGH and self._now_us() - self._sent_us < total * CALLER_US
        self._busy = self._busy + 1 if is_quicker else 0
        self._in_halves = self._busy >= LASTING
        if self._waiting or self._idle is not None:
            most = min((total + 1) // 2, MAX_ITEMS) if self._in_halves else MAX_ITEMS
            self._send_next(have_waited=True, most=most)

    def _fail(self, failed: Sequence[Entry[T, R]], errors: Iterable[Exception]) -> None:
        """End entries with their fallbacks, or send them a second time, ahead of all that wait."""
        resent = []
        for (item, future, submitted, is_second), error in zip(failed, errors):
            if future.done():
                continue
            if not is_second and self._resends(item, error):
                resent.append((item, future, submitted, True))
                continue
            try:
                future.set_result(self._fallback(item, error))
            except Exception as raised:  # noqa: BLE001  # whatever it is, it must reach those who wait
                future.set_exception(raised)
        self._waiting[:0] = resent
