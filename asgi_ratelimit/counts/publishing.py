"""Publishing: once a second, while anything changes, a process writes its counts of this minute into the store."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from asyncio import _get_running_loop
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from operator import sub
from threading import Lock
from typing import Any, Protocol
from weakref import ref

from ..errors import StoreError
from ..logs import FailureLog
from ..quota_text import RESERVED_NAMES, as_text
from ..stores import ByStore, Store
from ..stores.by_store import before_closing, reference
from ..stores.documents import documents
from ..stores.name_owners import owned
from ..stores.shared_time import shared_time
from .minutes import MINUTES, Minute, Row, document_of
from .rule_counts import NONE, Counts, Numbers, WaitTimes, counts_of

SECOND_US = 1_000_000

LASTS = 3900.0
"""Seconds after which a written minute is gone."""

MOST_ROWS, LONGEST_TEXT = 200, 200
"""The most rows of queues and servers, and the longest text in one: servers invent names of limits."""


class OutboundSource(Protocol):
    """An object with queues or limits that are published."""

    def outbound_rows(self) -> Iterable[Row]:
        """The rows to publish now; called from any thread."""
        ...


class OutboundSources:
    """What this process publishes besides its counts: its outbound queues, and what its transports have learned."""

    def __init__(self) -> None:
        self._sources: list[ref[OutboundSource]] = []

    def add(self, source: OutboundSource) -> None:
        """Publish the rows of this object too, for as long as it lives."""
        self._sources.append(ref(source, self._sources.remove))

    def rows(self) -> Iterator[Row]:
        """The first rows of all of them, with texts that are not too long."""
        living = [source for reference in list(self._sources) if (source := reference()) is not None]
        for row in islice((row for source in living for row in source.outbound_rows()), MOST_ROWS):
            yield {name: value[:LONGEST_TEXT] if isinstance(value, str) else value for name, value in row.items()}


outbound_sources = OutboundSources()


class Publisher:
    """Publishes the counts of this process on one store without keeping the store alive. One event loop runs it."""

    def __init__(self, store: Store) -> None:
        self._store = reference(store)
        self._documents = documents(store)
        self._time = shared_time(store)
        self._log = FailureLog()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_elsewhere = False
        """Whether its event loop is another one than that of the decisions that it publishes."""
        self._process: dict[str, Any] = {}
        self._rules: dict[str, Numbers] = {}
        """The counts of each rule up to now that were added to a minute."""
        self._requests = NONE
        """So for those of requests, each of which counts once."""
        self._outbound: list[Row] = []
        self._minute = Minute(0)
        self._unwritten: list[Minute] = []
        """Minutes that are over, and whose last write has not succeeded yet."""
        self._lock = Lock()

    @property
    def is_running(self) -> bool:
        """Whether an event loop publishes, and has not ended."""
        loop = self._loop
        return loop is not None and not loop.is_closed() and (self._is_elsewhere or loop.is_running())

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Publish from now on, on any event loop, unless one does so already."""
        if not self.is_running:
            self._loop, self._task = loop, None
            self._is_elsewhere = loop is not _get_running_loop()
            if self._is_elsewhere:
                loop.call_soon_threadsafe(self._schedule, loop)
            else:
                self._schedule(loop)

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
        store: Any = self._store()
        if store is not None:
            counts_of(store).is_published = False
        if self._task is not None:
            await asyncio.wait([self._task])
        await self.publish()
        if self._is_elsewhere:
            await self._documents.aclose()

    def reset(self) -> None:
        """Start afresh in a forked child: nothing is counted yet, and no event loop publishes."""
        self._loop = self._timer = self._task = None
        self._lock = Lock()
        store: Any = self._store()
        if store is not None:
            counts_of(store).is_published = False
            self._rules, self._requests = self._counted(counts_of(store))
        self._process, self._minute, self._unwritten = {}, Minute(0), []

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        """The next time is the next full second, so that all processes publish at the same time."""
        self._timer = loop.call_later(1 - self._time.now_us() % SECOND_US / SECOND_US, self._tick, loop)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        """A timer and short tasks: unlike a task that sleeps, they are no complaint of an event loop that ends."""
        if loop is not self._loop:  # another one has taken over
            return
        if self._store() is None:
            self._timer = self._loop = None
            if self._is_elsewhere:
                self._task = loop.create_task(self._documents.aclose())
            return
        self._schedule(loop)
        if self._task is None or self._task.done():
            self._task = loop.create_task(self.publish())

    async def publish(self) -> None:
        """Write everything new, the oldest minute first, unless another task or thread is already doing so."""
        store: Any = self._store()
        if store is None or not self._lock.acquire(blocking=False):
            return
        try:
            with suppress(StoreError):  # the result of the last look then still counts
                await self._time.look()
            minute, second = divmod(int(self._time.now_us() - SECOND_US // 2) // SECOND_US, 60)
            if minute != self._minute.number:
                self._begin_minute(minute)
            await self._collect(counts_of(store), second)
            for each in [*self._unwritten, self._minute]:
                if each.has_news:
                    await self._write(store, each)
        except StoreError:
            """What is unwritten is written later; the next one would wait as long for an answer now."""
        except Exception as error:  # noqa: BLE001  # nothing that is published is worth more than the app
            self._log.report("the counts could not be published", error)
        finally:
            self._unwritten = [each for each in self._unwritten if each.has_news]
            self._lock.release()

    def _begin_minute(self, number: int) -> None:
        """The minute before is written once more, now that it is over: with all of its recordings."""
        before, self._minute = self._minute, Minute(number)
        if before.seconds:
            before.is_over = before.has_news = True
            self._unwritten = [*self._unwritten, before][-MINUTES:]

    def _counted(self, counts: Counts) -> tuple[dict[str, Numbers], Numbers]:
        """The counts of each rule and of requests up to now; other threads may count meanwhile, but none goes down."""
        repeats = counts.repeats.copy()
        rules = {name: rule.numbers for name, rule in list(counts.items())}
        return rules, tuple(map(max, self._requests, map(sub, map(sum, zip(NONE, *rules.values())), repeats)))

    async def _collect(self, counts: Counts, second: int) -> None:
        """Add what was counted since the last call to the minute. Other tasks may run between two rules."""
        minute, rules_before, requests_before = self._minute, self._rules, self._requests
        self._rules, self._requests = self._counted(counts)
        if self._rules != rules_before:
            minute.count_requests(second, tuple(map(sub, self._requests, requests_before)))
        for name, numbers in self._rules.items():
            before = rules_before.get(name, NONE)
            if numbers != before:
                minute.add(name, second, tuple(map(sub, numbers, before)), counts[name])
                await asyncio.sleep(0)
        waits, counts.waits = counts.waits, WaitTimes()
        minute.waits.add_all(waits)
        outbound = list(outbound_sources.rows())
        if outbound != self._outbound:
            self._outbound, minute.has_news = outbound, True

    async def _write(self, store: Any, minute: Minute) -> None:
        """Write a minute; one that cannot be written, whatever the store answers, is not written again."""
        if not self._process:
            name = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"
            self._process = {"process": name, "started": int(self._time.now_us() // SECOND_US)}
        quotas: dict[str, list[str]] = {}
        penalties = []
        for name, quota in owned(store):
            if quota.name in RESERVED_NAMES:
                penalties.append(name)
            else:
                quotas.setdefault(name, []).append(as_text(quota))
        minute.has_news = False
        content = minute.content(
            {**self._process, "quotas": quotas, "penalties": penalties, "outbound": self._outbound}
        )
        try:
            await self._documents.write_part(
                document_of(minute.number), self._process["process"], content, seconds=LASTS
            )
        except StoreError:
            minute.has_news = True
            raise


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
    if getattr(store, "documents", None) is not None:
        with _lock:
            _publisher_of(store).start(loop)
            counts_of(store).is_published = True


async def publish_in_process(store: Store) -> None:
    """Publish what is left now, for a reader of a store in this process, unless an event loop does so by itself."""
    if store.in_process and getattr(store, "documents", None) is not None:
        with _lock:
            publisher = _publisher_of(store)
        if not publisher.is_running:
            counts_of(store).is_published = False  # so that the next event loop does
            await publisher.publish()


def _publisher_of(store: Store) -> Publisher:
    publisher = _publishers.get(store)
    if publisher is None:
        publisher = _publishers[store] = Publisher(store)
        before_closing[store] = publisher.stop
    return publisher


async def stop_publishing(store: Store) -> None:
    """Publish what is left, and stop."""
    publisher = _publishers.get(store)
    if publisher is not None:
        await publisher.stop()


def reset_publishers() -> None:
    """In a forked child, leave the counts of the parent to the parent."""
    global _lock
    _lock = Lock()
    for publisher in _publishers.values():
        publisher.reset()
