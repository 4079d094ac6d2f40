"""Group commit: while one batch is under way the next one gathers, and is sent as soon as the first is back.

It knows nothing about Redis. There is no timer that waits for more items: when nothing is under way, an item goes with
the others of the same iteration of the event loop.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from operator import itemgetter
from typing import Generic, TypeAlias, TypeVar

from ...background import keep

T = TypeVar("T")
R = TypeVar("R")

# An item, the future of its result, the time of the event loop at which its own deadline is over, and its weight.
Entry: TypeAlias = "tuple[T, asyncio.Future[R], float, int]"

# By so many seconds a deadline may be exceeded.
LAG = 0.02

# The most items in one batch.
MAX_ITEMS = 128


class GroupCommit(Generic[T, R]):
    """Sends items in batches, one batch at a time, on one event loop. A subclass says how.

    If ``send`` raises, exactly this batch fails. So does a batch that is not back ``timeout`` seconds after its first
    item was submitted, whatever ``send`` is doing then: it is cancelled, and nobody waits for its end. For items that
    are patient, that time begins when they are sent: they do not fail because thousands came at once.
    A batch has at most ``MAX_ITEMS``, of a total weight of ``most_weight``, or one that is heavier.

    Cancelling a caller neither stops a batch nor affects the others: an item that has not been sent is dropped.
    """

    def __init__(self, timeout: float, most_weight: int = MAX_ITEMS) -> None:
        self._timeout, self._most_weight = timeout, most_weight
        self._loop = asyncio.get_running_loop()
        self._waiting: list[Entry[T, R]] = []
        self._under_way: list[Entry[T, R]] = []
        self._sender: asyncio.Task[None] | None = None
        # Looks at the deadline of the batch under way. A timer for each batch would cost a lone item several µs.
        self._watch: asyncio.TimerHandle | None = None
        self._until = math.inf

    async def send(self, items: list[T]) -> Sequence[R | Exception]:
        """One result for each item, in order; a result that is an exception fails only its own item."""
        raise NotImplementedError

    def timed_out(self) -> Exception:
        """The error of a batch whose deadline is over."""
        raise NotImplementedError

    def instead(self, item: T, error: BaseException) -> R | BaseException:  # noqa: ARG002  # for those who need it
        """What the caller of an item gets that failed: a result, or an exception."""
        return error

    def weight_of(self, item: T) -> int:  # noqa: ARG002  # as above
        """How much of ``most_weight`` an item takes."""
        return 1

    def submit(self, item: T, is_patient: bool = False) -> asyncio.Future[R]:
        """The result of ``item``, once its batch is back. Cancelling it is safe."""
        result: asyncio.Future[R] = self._loop.create_future()
        until = math.inf if is_patient else self._loop.time() + self._timeout
        self._waiting.append((item, result, until, self.weight_of(item)))
        if self._sender is None:
            self._begin()
        return result

    async def drain(self) -> None:
        """Return when nobody waits for a result."""
        while results := [entry[1] for entry in (*self._under_way, *self._waiting) if not entry[1].done()]:
            await asyncio.wait(results)

    def fail_waiting(self, error: Exception) -> None:
        """Fail all items that have not been sent."""
        waiting, self._waiting = self._waiting, []
        self._end(waiting, error)

    def _begin(self) -> None:
        """Send from the next iteration of the loop on, so that the other items of this one go too."""
        # Not by ``create_task``, which may make an eager one: it would begin before it is known as the sender
        self._sender = keep(None, asyncio.Task(self._send_all(), loop=self._loop))

    async def _send_all(self) -> None:
        """Send batches, one after the other, until nobody waits, or until one of them expires."""
        sender = self._sender
        results: Sequence[R | Exception] | BaseException
        try:
            while self._waiting and (batch := self._next_batch()):
                self._under_way = batch
                self._until = min([self._loop.time() + self._timeout, *[entry[2] for entry in batch]])
                if self._watch is None or self._until < self._watch.when():
                    if self._watch is not None:
                        self._watch.cancel()
                    self._watch = self._loop.call_at(self._until, self._look)
                try:
                    results = await self.send([entry[0] for entry in batch])
                except GeneratorExit:  # the event loop is gone, and nobody waits
                    raise
                except BaseException as error:  # noqa: BLE001  # whatever it is, it must reach those who wait
                    results = error
                if self._sender is not sender:  # the batch has expired, and another sender goes on
                    break
                self._under_way = []
                self._end(batch, results)
        finally:
            if self._sender is sender:
                self._sender = None

    def _next_batch(self) -> list[Entry[T, R]]:
        batch: list[Entry[T, R]] = []
        weight = taken = 0
        if len(self._waiting) > MAX_ITEMS // 4:  # all of them may be too heavy for a batch; who is patient comes last
            self._waiting.sort(key=itemgetter(2))
        for entry in self._waiting:
            if not entry[1].done():
                weight += entry[3]
                if batch and (weight > self._most_weight or len(batch) == MAX_ITEMS):
                    break
                batch.append(entry)
            taken += 1
        del self._waiting[:taken]
        return batch

    def _look(self) -> None:
        """Fail the batch under way if its deadline is over, else look again then."""
        self._watch, batch, now = None, self._under_way, self._loop.time()
        if batch and now > self._until + LAG:  # the event loop was busy: what has come meanwhile is read first
            self._watch = self._loop.call_later(LAG, self._look)
            self._until = math.nan  # which no time is before or after, so that the next look is the last
        elif batch and now < self._until:
            self._watch = self._loop.call_at(self._until, self._look)
        elif batch:
            if self._sender is not None:
                self._sender.cancel()  # which it may swallow; nobody waits for it
            self._begin()
            self._end(batch, self.timed_out())

    def _end(self, batch: list[Entry[T, R]], results: Sequence[R | Exception] | BaseException) -> None:
        """Give each caller of a batch its result."""
        if not isinstance(results, BaseException) and len(results) != len(batch):
            results = ValueError(f"{len(results)} results for {len(batch)} items")
        answers = [results] * len(batch) if isinstance(results, BaseException) else results
        for (item, future, _, _), answer in zip(batch, answers):
            if future.done():
                continue
            result: R | BaseException = answer
            if isinstance(answer, BaseException):
                try:
                    result = self.instead(item, answer)
                except Exception as error:  # noqa: BLE001  # or those behind it would wait for ever
                    result = error
            if not isinstance(result, BaseException):
                future.set_result(result)
            elif isinstance(result, asyncio.CancelledError):
                future.cancel()
            else:
                future.set_exception(result)
