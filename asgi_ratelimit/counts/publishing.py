"""Publishing: once a second, while anything changes, a process writes its counts of this minute into the store."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from asyncio import _get_running_loop
from contextlib import suppress
from threading import Lock
from typing import Any

from ..clock import SystemClock
from ..errors import StoreError
from ..logs import FailureLog
from ..quota_text import RESERVED_NAMES, as_text
from ..stores import ByStore, Store
from ..stores.by_store import before_closing, reference
from ..stores.documents import documents
from ..stores.name_owners import owned
from ..stores.shared_time import shared_time
from .minutes import LASTS, MINUTES, NONE, Minute, Numbers, document_of
from .rule_counts import Row, counts_of, outbound_sources
from .waits import WaitTimes

SECOND_US = 1_000_000


class Publisher:
    """Publishes the counts of this process on one store without keeping the store alive. One event loop runs it."""

    def __init__(self, store: Store) -> None:
        self._store = reference(store)
        self._documents = documents(store)
        self._time = shared_time(store)
        self._is_real_time = isinstance(store.clock or SystemClock(), SystemClock)
        self._process: dict[str, Any] = {}
        self._published: dict[str, Numbers] = {}
        self._waits = WaitTimes()
        self._outbound: list[Row] = []
        self._minute = Minute(0)
        self._unwritten: list[Minute] = []
        """Minutes that are over, and whose last write has not succeeded yet."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_elsewhere = False
        """Whether its event loop is another one than that of the decisions that it publishes."""
        self._lock = Lock()
        self._log = FailureLog()

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Publish from now on, on any event loop, unless one does so already."""
        if self.is_running:
            return
        self._loop, self._task = loop, None
        self._is_elsewhere = loop is not _get_running_loop()
        if self._is_elsewhere:
            loop.call_soon_threadsafe(self._schedule, loop)
        else:
            self._schedule(loop)

    @property
    def is_running(self) -> bool:
        """Whether an event loop publishes, and has not ended."""
        loop = self._loop
        return loop is not None and not loop.is_closed() and (self._is_elsewhere or loop.is_running())

    async def stop(self) -> None:
        """Publish what is left, and stop; it can be started again."""
        loop = self._loop
        if loop is None or loop.is_closed():
            return
        if loop is _get_running_loop():
            await self._stop_here()
        elif self._is_elsewhere:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._stop_here(), loop))

    async def _stop_here(self) -> None:
        if self._timer is None:
            return
        self._timer.cancel()
        self._timer = self._loop = None
        store = self._store()
        if store is not None:
            counts_of(store).is_published = False  # type: ignore[arg-type]  # it is one
        if self._task is not None:
            await asyncio.wait([self._task])
        await self.publish_all()
        if self._is_elsewhere:
            await self._documents.aclose()

    def reset(self) -> None:
        """Start afresh in a forked child: nothing is counted yet, and no event loop publishes."""
        store = self._store()
        if store is not None:
            counts = counts_of(store)  # type: ignore[arg-type]  # it is one
            counts.is_published = False
            self._published = {name: rule.numbers for name, rule in counts.items()}
            self._waits = counts.waits.copy()
        self._minute, self._unwritten = Minute(0), []
        self._loop = self._timer = self._task = None
        self._lock = Lock()

    async def publish_all(self) -> None:
        """Publish everything new, unless another task or thread is already doing so."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            has_changed = await self._collect_now() or self._minute.has_news
            for _ in range(len(self._unwritten) + has_changed):
                if not await self._write():  # the next one would wait as long for an answer
                    break
        finally:
            self._lock.release()

    async def collect(self, now_us: float) -> bool:
        """Add what was counted since the last call to the minute of half a second ago; return whether anything changed.

        Other tasks may run between two rules.
        """
        store = self._store()
        minute, second = divmod(int(now_us - SECOND_US // 2) // SECOND_US, 60)
        if minute != self._minute.number:
            self._end_minute()
            self._minute = self._minute.next(minute)
        has_changed = store is not None and await self._collect_counts(store, second)
        if second == 59:
            self._end_minute()
        outbound = list(outbound_sources.rows())
        has_changed, self._outbound = has_changed or outbound != self._outbound, outbound
        return has_changed

    async def _collect_counts(self, store: Any, second: int) -> bool:
        counts, has_changed = counts_of(store), False
        for name, rule in list(counts.items()):
            numbers, before = rule.numbers, self._published.get(name, NONE)
            if numbers != before:
                self._published[name] = numbers
                self._minute.add(name, second, tuple([now - then for now, then in zip(numbers, before)]), rule)
                has_changed = True
                await asyncio.sleep(0)
        if counts.waits.total_ns != self._waits.total_ns:
            self._minute.waits.add_all(counts.waits.since(self._waits))
            self._waits = counts.waits.copy()
        return has_changed

    def _end_minute(self) -> None:
        minute = self._minute
        if minute.has_news or (minute.seconds and not minute.is_over):
            minute.is_over = True
            others = [each for each in self._unwritten if each is not minute]
            self._unwritten = [*others, minute][-MINUTES:]

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        """The next time is the next full second, so that all processes publish at the same time."""
        self._timer = loop.call_later(1 - self._time.now_us() % SECOND_US / SECOND_US, self._tick, loop)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        if loop is not self._loop:  # another one has taken over
            return
        if self._store() is None:
            self._timer = self._loop = None
            if self._is_elsewhere:
                self._task = loop.create_task(self._documents.aclose())
            return
        self._schedule(loop)
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._publish())

    async def _publish(self) -> None:
        if await self._collect_now() or self._unwritten or self._minute.has_news:
            await self._write()

    async def _collect_now(self) -> bool:
        with suppress(StoreError):  # the result of the last look then still counts
            await self._time.look()
        return await self.collect(self._time.now_us())

    def _this_process(self) -> dict[str, Any]:
        """What identifies this process, and distinguishes it from the one that it was forked from."""
        if self._process.get("pid") != os.getpid():
            name = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"
            self._process = {"process": name, "pid": os.getpid(), "started": self._time.now_us() // SECOND_US}
        return self._process

    async def _write(self) -> bool:
        """Write one minute: the oldest one that is over, or else the current one.

        Returns whether the store has answered. If not, the minute is written again later; after any other error, which
        is logged, it is not.
        """
        store = self._store()
        minute = self._unwritten[0] if self._unwritten else self._minute
        if store is None:
            return False
        quotas: dict[str, list[str]] = {}
        penalties = []
        for name, quota in owned(store):
            if quota.name in RESERVED_NAMES:
                penalties.append(name)
            else:
                quotas.setdefault(name, []).append(as_text(quota))
        minute.has_news = False
        try:
            content = await self._content(minute, quotas, penalties)
            await self._documents.write_part(
                document_of(minute.number), self._this_process()["process"], content, seconds=LASTS
            )
        except StoreError:
            minute.has_news = True
            return False
        except Exception as error:  # noqa: BLE001  # nothing that is published is worth more than the app
            self._log.report("the counts could not be published", error)
        if minute in self._unwritten:
            self._unwritten.remove(minute)
        return True

    async def _content(self, minute: Minute, quotas: dict[str, list[str]], penalties: list[str]) -> bytes:
        """The content to write for a minute. A minute that is over has much to encode, so a thread encodes it.

        No thread is used with a stepped clock, which would go on while the loop waits, nor in a loop that is ending,
        which has no threads left.
        """
        values = self._this_process(), quotas, penalties, self._outbound
        if minute.is_over and self._is_real_time:
            with suppress(RuntimeError):
                return await asyncio.to_thread(minute.content, *values)
        return minute.content(*values)


_publishers: ByStore[Publisher] = ByStore()
_lock = Lock()


def publish(store: Store) -> None:
    """Publish the counts of this process on ``store``, from the running event loop of asyncio, until that ends.

    It does nothing if there is no such event loop, or if the store has no documents.
    """
    loop = _get_running_loop()
    if loop is not None:
        publish_on(store, loop)


def publish_on(store: Store, loop: asyncio.AbstractEventLoop) -> None:
    """Publish the counts of this process on ``store`` from an event loop, unless another one does so already."""
    if getattr(store, "documents", None) is None:
        return
    with _lock:
        publisher = _publisher_of(store)
        publisher.start(loop)
        counts_of(store).is_published = True


async def publish_in_process(store: Store) -> None:
    """Publish what is left now, for a reader of a store in this process, unless an event loop does so by itself."""
    if store.in_process and getattr(store, "documents", None) is not None:
        with _lock:
            publisher = _publisher_of(store)
        if not publisher.is_running:
            counts_of(store).is_published = False  # so that the next event loop does
            await publisher.publish_all()


def _publisher_of(store: Store) -> Publisher:
    publisher = _publishers.get(store)
    if publisher is None:
        publisher = _publishers[store] = Publisher(store)
        before_closing[store] = publisher.stop
    return publisher


def reset_publishers() -> None:
    """In a forked child, leave the counts of the parent to the parent."""
    global _lock
    _lock = Lock()
    for publisher in _publishers.values():
        publisher.reset()


async def stop_publishing(store: Store) -> None:
    """Publish what is left, and stop."""
    publisher = _publishers.get(store)
    if publisher is not None:
        with suppress(StoreError):
            await publisher.stop()
