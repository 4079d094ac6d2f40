"""The counts of this process on a store: requests add to them, and once a second they are written into the store.

A store in memory is read in this process alone, so a decision in a new second, or a reader, has them written. For a
store on a server, the background loop does so, because an event loop of the program may end early.
"""

from __future__ import annotations

import math
import os
import secrets
import socket
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from itertools import islice
from threading import Lock
from typing import Any
from weakref import ref

from ..clock import SECOND_NS, SystemClock, ns_of
from ..decision import Decision
from ..errors import StoreError
from ..logs import FailureLog
from ..quota_text import RESERVED_NAMES, as_text
from ..quotas import SECOND_US
from ..stores import ByStore, Store
from ..stores.base import before_closing, owned
from ..stores.documents import shared_time
from ..waiting.drivers import run_in_place
from ..waiting.waiter import Row, outbound_sources
from .minutes import MINUTES, NONE, Minute, RuleCounts, WaitTimes, added, document_of
from .repeating import Repeating

ADMITTED, REFUSED, SHADOWED, DEGRADED, FAILED = range(5)
"""The places of the counts in ``Numbers``."""

LASTS = 3900.0
"""Seconds after which a written minute is gone."""

MOST_ROWS, LONGEST_TEXT = 200, 200
"""The most rows of queues and servers, and the longest text in one: servers invent names of limits."""

_failures = FailureLog()


class Counts(Repeating):
    """What this process has counted on one store, of each rule and of all requests, each of which counts once.

    The store is not kept alive. A store without documents is counted, and nobody reads it.
    """

    def __init__(self, store: Store) -> None:
        self._store = ref(store)
        self._documents: Any = getattr(store, "documents", None)
        self._in_process = store.in_process
        self._now_ns = ns_of(getattr(store, "clock", None) or SystemClock())
        self._begin_anew()
        if self._documents is not None:
            self._time = shared_time(store)
            before_closing[store] = self.end
            super().__init__(self._documents.aclose)

    def _begin_anew(self) -> None:
        self.rules: dict[str, RuleCounts] = {}
        self.waits = WaitTimes()
        self._requests = RuleCounts()
        name = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"
        self._process = {"process": name, "started": self._now_ns() // SECOND_NS}
        self._due_ns = 0.0 if self._documents is not None else math.inf
        """From this time on, a request has to see to it that the counts are written."""
        self._second = 0
        """When that came which is still to be collected, for a store in this process."""
        self._minutes = [Minute(0)]
        """The current minute, and before it those that are over, and whose last write has not succeeded yet."""
        self._outbound: list[Row] = []
        self._is_writing = Lock()

    @property
    def is_needed(self) -> bool:
        """Whether the background loop is to write."""
        return self._documents is not None and not self._in_process and self._store() is not None

    def of_rule(self, name: str) -> RuleCounts:
        """The counts of a rule; another thread may just have made them."""
        return self.rules.setdefault(name, RuleCounts())

    def count(self, decisions: Iterable[Decision]) -> None:
        """Count the decisions of one request: each for the rules that it charges, or for those that refuse it.

        A decision that an outage refuses, and not a quota, counts as refused by all of its rules. The request counts as
        refused, or else as shadowed, or else as admitted.
        """
        if self._due_ns != math.inf and (now_ns := self._now_ns()) >= self._due_ns:
            self._have_written(now_ns)
        rules, outcome, is_degraded = self.rules, None, False
        for decision in decisions:
            allowed, names = decision.allowed, []
            result = ADMITTED if allowed else SHADOWED if decision.shadow else REFUSED
            refusing = decision.take.charges if allowed else decision.refusing
            for charge in refusing or decision.take.charges:
                name = charge.name or ""
                if name in names or ((allowed or not refusing) and charge.quota.name in RESERVED_NAMES):
                    continue
                names.append(name)
                rule, bucket = rules.get(name) or self.of_rule(name), charge.bucket
                rule.requests.append(bucket)
                rule.numbers[result] += 1
                if not allowed:
                    rule.refusals.append(bucket)
                if decision.degraded:
                    rule.numbers[DEGRADED] += 1
            if names and (outcome is None or outcome == ADMITTED):
                outcome, is_degraded = result, is_degraded or decision.degraded
        if outcome is not None:
            numbers = self._requests.numbers
            numbers[outcome] += 1
            if is_degraded:
                numbers[DEGRADED] += 1

    def count_failure(self, name: str) -> None:
        """Count a function of the program that has failed for a rule."""
        for counts in (self.of_rule(name), self._requests):
            counts.numbers[FAILED] += 1

    async def run(self) -> float:
        """Write; return the seconds until the next full second, so that all processes write at the same time."""
        with suppress(StoreError):  # the result of the last look then still counts
            await self._time.look()
        await self.write(int(self._time.now_us() / SECOND_US - 0.5))
        return max(1 - self._time.now_us() % SECOND_US / SECOND_US, 0.1)

    async def run_last(self) -> None:
        """Write what is left; the next decision begins again."""
        self._due_ns = 0.0
        await self.run()

    def reset(self) -> None:
        """In a forked child, nothing is counted yet."""
        self._begin_anew()
        self.stop()

    def _have_written(self, now_ns: int) -> None:
        """See to it that what was counted until now is written, at once or soon."""
        if not self._in_process:
            self._due_ns = math.inf
            self.start()
            return
        self._due_ns = (now_ns // SECOND_NS + 1) * SECOND_NS
        before, self._second = self._second, now_ns // SECOND_NS
        for second in (before, self._second):
            run_in_place(self.write(second))

    async def write_in_process(self) -> None:
        """Write, for a reader of a store in this process."""
        if self._in_process and self._documents is not None:
            self._have_written(self._now_ns())

    async def write(self, at: int) -> None:
        """Write everything new, the oldest minute first, unless another thread is doing so.

        What was counted since the last time came in the second ``at`` of the Unix epoch.
        """
        store: Any = self._store()
        if store is None or not self._is_writing.acquire(blocking=False):
            return
        try:
            self._collect(*divmod(at, 60))
            for minute in self._minutes:
                if minute.has_news:
                    await self._write_minute(store, minute)
        except StoreError:
            """What is unwritten is written later; the next one would wait as long for an answer now."""
        except Exception as error:  # noqa: BLE001  # nothing that is written is worth more than the app
            _failures.report("the counts could not be published", error)
        finally:
            *over, current = self._minutes
            self._minutes = [*[minute for minute in over if minute.has_news], current][-MINUTES:]
            self._is_writing.release()

    def _collect(self, number: int, second: int) -> None:
        """Add what was counted since the last call to a minute.

        The minute before is written once more, now that it is over: with all of its recordings.
        """
        minute = self._minutes[-1]
        if number != minute.number:
            minute.is_over = minute.has_news = bool(minute.seconds)
            minute = Minute(number)
            self._minutes.append(minute)
        requests = self._requests.collect()
        if any(requests):
            minute.seconds[second] = added(minute.seconds.get(second, NONE), requests)
            minute.has_news = True
        for name, rule in list(self.rules.items()):
            numbers = rule.collect()
            if any(numbers):
                minute.add(name, second, numbers, rule)
        waits, self.waits = self.waits, WaitTimes()
        minute.waits.add_all(waits)
        outbound = _outbound_rows()
        if outbound != self._outbound:
            self._outbound, minute.has_news = outbound, True

    async def _write_minute(self, store: Any, minute: Minute) -> None:
        """Write a minute; one that cannot be written, whatever the store answers, is not written again."""
        quotas: defaultdict[str, list[str]] = defaultdict(list)
        penalties = []
        for name, quota in owned(store):
            if quota.name in RESERVED_NAMES:
                penalties.append(name)
            else:
                quotas[name].append(as_text(quota))
        values = {**self._process, "quotas": quotas, "penalties": penalties, "outbound": self._outbound}
        part = str(self._process["process"]), minute.content(values)
        minute.has_news = False
        try:
            await self._documents.write_part(document_of(minute.number), *part, seconds=LASTS)
        except StoreError:
            minute.has_news = True
            raise


def _outbound_rows() -> list[Row]:
    """The first rows of all sources, with texts that are not too long."""
    rows = islice((row for source in list(outbound_sources) for row in source.outbound_rows()), MOST_ROWS)
    return [
        {name: each[:LONGEST_TEXT] if isinstance(each, str) else each for name, each in row.items()} for row in rows
    ]


_counts: ByStore[Counts] = ByStore()


def counts_of(store: Store) -> Counts:
    """The counts of this process on a store, shared by all users of that object."""
    return _counts.get(store) or _counts.made(store, Counts)
