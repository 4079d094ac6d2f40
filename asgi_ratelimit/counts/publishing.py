"""Publishing: once a second, while anything changes, a process writes its counts of this minute into the store."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from asyncio import _get_running_loop
from contextlib import suppress
from itertools import islice
from operator import sub
from threading import Lock
from typing import Any
from weakref import WeakSet

from ..errors import StoreError
from ..logs import FailureLog
from ..quota_text import RESERVED_NAMES, as_text
from ..stores import ByStore, Store
from ..stores.base import before_closing, reference
from ..stores.documents import documents, shared_time
from ..stores.name_owners import owned
from .minutes import MINUTES, Minute, Row, added, document_of
from .rule_counts import NONE, Counts, Numbers, WaitTimes, counts_of
from .ticker import Ticker

SECOND_US = 1_000_000

LASTS = 3900.0
"""Seconds after which a written minute is gone."""

MOST_ROWS, LONGEST_TEXT = 200, 200
"""The most rows of queues and servers, and the longest text in one: servers invent names of limits."""


outbound_sources: WeakSet[Any] = WeakSet()
"""What has outbound queues or has learned limits: objects whose ``outbound_rows()`` are published, while they live."""


class Publisher(Ticker):
    """Publishes the counts of this process on one store without keeping the store alive. One event loop runs it."""

    def __init__(self, store: Store) -> None:
        self._store = reference(store)
        self._documents = documents(store)
        super().__init__(self._documents.aclose)
        self._time = shared_time(store)
        self._process: dict[str, Any] = {}
        self._rules: dict[str, Numbers] = {}
        """The counts of each rule up to now that were added to a minute."""
        self._requests = NONE
        """So for those of requests, each of which counts once."""
        self._outbound: list[Row] = []
        self._minute = Minute(0)
        self._unwritten: list[Minute] = []
        """Minutes that are over, and whose last write has not succeeded yet."""
        self._is_writing = Lock()

    @property
    def until_next(self) -> float:
        """Seconds until the next full second, so that all processes publish at the same time."""
        return 1 - self._time.now_us() % SECOND_US / SECOND_US

    async def run(self) -> float:
        """Publish."""
        await self.publish()
        return self.until_next

    async def run_last(self) -> None:
        """Publish what is left."""
        store: Any = self._store()
        if store is not None:
            counts_of(store).is_published = False
        await self.publish()

    def leave_to_parent(self) -> None:
        """In a forked child, nothing is counted yet, and no event loop publishes."""
        self.begin_anew()
        store: Any = self._store()
        if store is not None:
            counts_of(store).is_published = False
            self._rules, self._requests = self._counted(counts_of(store))
        self._process, self._minute, self._unwritten, self._is_writing = {}, Minute(0), [], Lock()

    async def publish(self) -> None:
        """Write everything new, the oldest minute first, unless another task or thread is already doing so."""
        store: Any = self._store()
        if store is None or not self._is_writing.acquire(blocking=False):
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
            _failures.report("the counts could not be published", error)
        finally:
            self._unwritten = [each for each in self._unwritten if each.has_news]
            self._is_writing.release()

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
            requests = map(sub, self._requests, requests_before)
            minute.seconds[second] = added(minute.seconds.get(second, NONE), requests)
            minute.has_news = True
        for name, numbers in self._rules.items():
            before = rules_before.get(name, NONE)
            if numbers != before:
                minute.add(name, second, tuple(map(sub, numbers, before)), counts[name])
                await asyncio.sleep(0)
        waits, counts.waits = counts.waits, WaitTimes()
        minute.waits.add_all(waits)
        outbound = _outbound_rows()
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


def _outbound_rows() -> list[Row]:
    """The first rows of all sources, with texts that are not too long."""
    rows = islice((row for source in list(outbound_sources) for row in source.outbound_rows()), MOST_ROWS)
    return [
        {name: each[:LONGEST_TEXT] if isinstance(each, str) else each for name, each in row.items()} for row in rows
    ]


_publishers: ByStore[Publisher] = ByStore()
_failures = FailureLog()
_lock = Lock()


def publish(store: Store) -> None:
    """Publish the counts of this process on ``store``, from the running event loop of asyncio, until that ends.

    It does nothing if there is no such event loop, or if the store has no documents.
    """
    loop = _get_running_loop()
    if loop is not None:
        publish_on(store, loop, is_lasting=False)


def publish_on(store: Store, loop: asyncio.AbstractEventLoop, *, is_lasting: bool = True) -> None:
    """Publish the counts of this process on ``store`` from an event loop, unless another one does so already.

    A lasting one runs until the program ends.
    """
    if getattr(store, "documents", None) is not None:
        publisher = _publisher_of(store)
        publisher.start_on(loop, publisher.until_next, is_lasting=is_lasting)
        counts_of(store).is_published = True


async def publish_in_process(store: Store) -> None:
    """Publish what is left now, for a reader of a store in this process, unless an event loop does so by itself."""
    if store.in_process and getattr(store, "documents", None) is not None:
        publisher = _publisher_of(store)
        if not publisher.is_running:
            counts_of(store).is_published = False  # so that the next event loop does
            await publisher.publish()


def _publisher_of(store: Store) -> Publisher:
    with _lock:
        publisher = _publishers.get(store)
        if publisher is None:
            publisher = _publishers[store] = Publisher(store)
            before_closing[store] = publisher.end
        return publisher


async def stop_publishing(store: Store) -> None:
    """Publish what is left, and stop."""
    publisher = _publishers.get(store)
    if publisher is not None:
        await publisher.end()


def reset_publishers() -> None:
    """In a forked child, leave the counts of the parent to the parent."""
    global _lock
    _lock = Lock()
    for publisher in _publishers.values():
        publisher.leave_to_parent()
