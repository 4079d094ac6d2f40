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
from ..quota_text import as_text
from ..stores import ByStore, Store
from ..stores.by_store import before_closing, reference
from ..stores.documents import documents
from ..stores.name_owners import owned
from .minutes import LASTS, MINUTES, NONE, Minute, Numbers, document_of
from .rule_counts import counts_of
from .sources import Row, outbound_sources
from .waits import WaitTimes

SECOND_US = 1_000_000


class Publisher:
    """Publishes the counts of this process on one store, which it does not keep alive. One event loop runs it."""

    def __init__(self, store: Store) -> None:
        self._store = reference(store)
        clock = getattr(store, "clock", None) or SystemClock()
        self._now_us = clock.now_us
        self._is_real_time = isinstance(clock, SystemClock)
        self._process: dict[str, Any] = {}
        self._published: dict[str, Numbers] = {}
        self._waits = WaitTimes()
        self._outbound: list[Row] = []
        self._minute = Minute(0)
        self._unwritten: list[Minute] = []
        """Minutes that are over; the last write of each has still to succeed."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._log = FailureLog()

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Publish from now on, unless another event loop does so already."""
        if self._timer is not None and self._loop is not None and not self._loop.is_closed():
            return
        if self._process.get("pid") != os.getpid():
            name = f"{socket.gethostname()}:{os.getpid()}"
            started = self._now_us() // SECOND_US
            self._process = {"process": f"{name}:{secrets.token_hex(3)}", "pid": os.getpid(), "started": started}
        self._loop, self._task = loop, None
        self._schedule(loop)

    async def stop(self) -> None:
        """Publish what is left, and stop; it can be started again."""
        if self._timer is None or self._loop is not _get_running_loop():
            return
        self._timer.cancel()
        self._timer = None
        if self._task is not None:
            await asyncio.wait([self._task])
        await self._publish(self._now_us())

    async def collect(self, now_us: float) -> bool:
        """Add what was counted since the last time to the minute of half a second ago; whether there was anything.

        Others run between two rules.
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
        self._timer = loop.call_later(1 - self._now_us() % SECOND_US / SECOND_US, self._tick)

    def _tick(self) -> None:
        loop = self._loop
        if self._store() is None or loop is None:
            self._timer = None
            return
        self._schedule(loop)
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._publish(self._now_us()))

    async def _publish(self, now_us: float) -> None:
        if await self.collect(now_us) or self._unwritten or self._minute.has_news:
            await self._write()

    async def _write(self) -> None:
        """Write one minute: the oldest one that is over, or else the current one. A failure is tried again later."""
        store = self._store()
        minute = self._unwritten[0] if self._unwritten else self._minute
        if store is None:
            return
        quotas: dict[str, list[str]] = {}
        for name, quota in owned(store):
            quotas.setdefault(name, []).append(as_text(quota))
        minute.has_news = False
        try:
            content = await self._content(minute, quotas)
            await documents(store).write_part(
                document_of(minute.number), self._process["process"], content, seconds=LASTS
            )
        except StoreError:
            minute.has_news = True
            return
        except Exception as error:  # noqa: BLE001  # nothing that is published is worth more than the app
            self._log.report("the counts could not be published", error)
        if minute in self._unwritten:
            self._unwritten.remove(minute)

    async def _content(self, minute: Minute, quotas: dict[str, list[str]]) -> bytes:
        """What is written of a minute. One that is over has much to encode, which a thread does.

        A stepped clock would go on while a loop waits for a thread, and a loop that ends has no threads any more.
        """
        values = self._process, quotas, self._outbound
        if minute.is_over and self._is_real_time:
            with suppress(RuntimeError):
                return await asyncio.to_thread(minute.content, *values)
        return minute.content(*values)


_publishers: ByStore[Publisher] = ByStore()
_lock = Lock()


def publish(store: Store) -> None:
    """Publish the counts of this process on ``store``, from the running event loop of asyncio, until that ends.

    It does nothing where there is no such event loop, and for a store that has no documents.
    """
    loop = _get_running_loop()
    if loop is None or getattr(store, "documents", None) is None:
        return
    with _lock:
        publisher = _publishers.get(store)
        if publisher is None:
            publisher = _publishers[store] = Publisher(store)
            before_closing[store] = publisher.stop
        publisher.start(loop)


async def stop_publishing(store: Store) -> None:
    """Publish what is left, and stop."""
    publisher = _publishers.get(store)
    if publisher is not None:
        with suppress(StoreError):
            await publisher.stop()
