"""The counts of this process on a store, and the work in the background that writes them.

Requests add to the counts, and once a second they are written into the store, so that all processes can be summed up.
A store in memory is read in this process alone, so a decision in a new second, or a reader, has them written. For a
store on a server, the background loop does so, because an event loop of the program may end early.
"""

from __future__ import annotations

import asyncio
import math
import os
import secrets
import socket
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from contextvars import Context
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
from ..stores.base import owned
from ..stores.documents import shared_time
from ..stores.event_loops import keep
from ..waiting.drivers import background_loop, reset_in_child, run_in_place
from ..waiting.waiter import outbound_sources
from .minutes import MINUTES, NONE, Minute, RuleCounts, added, document_of

_failures = FailureLog()


# Work in the background

EVERY = 0.9
"""Seconds between two runs, so that a change is known everywhere within a second."""


class Repeating:
    """The background loop of this process awaits ``run`` again and again, from ``start`` to ``end``.

    It is done there whichever event loop or thread needs it, so that it outlives any of them. It is done by timers and
    short tasks: unlike a task that sleeps, nobody complains of them when a process ends. It ends when ``owner`` returns
    ``None``. ``close`` closes what the work has opened there.
    """

    is_running = _is_attached = False
    """Whether it was started, and has not ended; and whether a store does both."""

    def __init__(self, owner: Callable[[], Any], close: Any) -> None:
        self._owner = owner
        self._close = close
        self.reset()
        reset_in_child(self)

    async def run(self) -> float:
        """Do the work once; return the seconds until the next time, or infinity to end."""
        raise NotImplementedError

    def start(self) -> None:
        """Begin, unless the work is done already. Thread-safe."""
        if not self.is_running:
            self.is_running = True
            background_loop.loop().call_soon_threadsafe(self._begin, context=Context())

    async def end(self) -> None:
        """Return when the work was done once more, and has closed what it opened; it can be started again."""
        if self.is_running:
            await asyncio.wrap_future(background_loop.start(self._end()))

    def reset(self) -> None:
        """Start afresh in a forked child, which has this object, but not the thread that does the work."""
        goes_on, self.is_running = self.is_running and not self._is_attached, False
        self._timer: asyncio.TimerHandle | None = None
        self._turn = asyncio.Lock()
        if goes_on:
            self.start()

    def _begin(self) -> None:
        keep(None, asyncio.get_running_loop().create_task(self._run()))

    async def _run(self) -> None:
        async with self._turn:
            if not self.is_running:
                return
            seconds = math.inf if self._owner() is None else await self._once()
            if seconds == math.inf:
                self.is_running = False
                await self._close()
                return
            if self._timer is not None:  # it was set before the work ended, and was started again
                self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_later(seconds, self._begin)

    async def _end(self) -> None:
        self.is_running = False
        async with self._turn:  # what is under way comes to its end
            await self._once()
            if not self.is_running:  # nobody has started it again
                await self._close()

    async def _once(self) -> float:
        try:
            return await self.run()
        except Exception as error:  # noqa: BLE001  # nobody else would notice that it has ended
            _failures.report("what is done in the background failed", error)
            return EVERY


class BesideStore(Repeating):
    """Work on the documents of a store, which is not kept alive, while an event loop uses it; none if it has none.

    Attributes that the work needs have to be there before: it may begin at once.
    """

    def __init__(self, store: Any) -> None:
        self.documents: Any = getattr(store, "documents", None)
        self.in_process = store.in_process
        super().__init__(ref(store), getattr(self.documents, "aclose", None))
        if self.documents is None:
            return
        self.time = shared_time(store)
        self._is_attached = hasattr(store, "attach")
        if self._is_attached:
            store.attach(self)
        elif not self.in_process:
            self.start()


# The counts

ADMITTED, REFUSED, SHADOWED, DEGRADED, FAILED = range(5)
"""The places of the counts in ``Numbers``."""

LASTS = 3900.0
"""Seconds after which a written minute is gone."""

MOST_ROWS, LONGEST_TEXT = 200, 200
"""The most rows of queues and servers, and the longest text in one: servers invent names of limits."""


class Counts(BesideStore):
    """What this process has counted on one store, of each rule and of all requests, each of which counts once."""

    def __init__(self, store: Store) -> None:
        self._now_ns = ns_of(getattr(store, "clock", None) or SystemClock())
        super().__init__(store)

    def reset(self) -> None:
        """Start afresh: in a forked child, nothing is counted yet."""
        super().reset()
        self.rules: dict[str, RuleCounts] = {}
        self._requests = RuleCounts()
        name = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"
        self._process = {"process": name, "started": self._now_ns() // SECOND_NS}
        is_written_here = self.in_process and self.documents is not None
        self._due_ns = 0.0 if is_written_here else math.inf
        """From this time on, a request has to see to it that the counts are written."""
        self._second = 0
        """When that came which is still to be collected."""
        self._minutes = [Minute(0)]
        """The current minute, and before it those that are over, and whose last write has not succeeded yet."""
        self.waits = self._minutes[0].waits
        """The waits for the store in the current minute."""
        self._outbound: list[list[Any]] = []
        self._is_writing = Lock()

    def of_rule(self, name: str) -> RuleCounts:
        """The counts of a rule; another thread may just have made them."""
        return self.rules.setdefault(name, RuleCounts())

    def count(self, decisions: Iterable[Decision]) -> None:
        """Count the decisions of one request: each for the rules that it charges, or for those that refuse it.

        A decision that an outage refuses, and not a quota, counts as refused by all of its rules. The request counts as
        refused, or else as shadowed, or else as admitted.
        """
        if self._due_ns != math.inf and self._now_ns() >= self._due_ns:
            self.write_here()
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

    def write_here(self) -> None:
        """Write what was counted until now into a store in this process; nothing into one on a server."""
        if self._due_ns != math.inf and self._is_writing.acquire(blocking=False):
            self._due_ns = (self._now_ns() // SECOND_NS + 1) * SECOND_NS
            run_in_place(self._once())
            self._is_writing.release()

    async def run(self) -> float:
        """Write everything new, the oldest minute first.

        Returns the seconds until the next full second, so that all processes write at the same time.
        """
        with suppress(StoreError):  # the result of the last look then still counts
            await self.time.look()
        now = self.time.now_us() / SECOND_US
        for second in (self._second, int(now)) if self.in_process else (int(now - 0.5),):
            self._collect(*divmod(second, 60))
        self._second = int(now)
        with suppress(StoreError):  # what is unwritten is written later; the next one would wait as long for an answer
            for minute in self._minutes:
                if minute.has_news:
                    await self._write(minute)
        return max(1 - self.time.now_us() % SECOND_US / SECOND_US, 0.1)

    def _collect(self, number: int, second: int) -> None:
        """Add what was counted since the last call to a minute.

        The minute before is written once more, now that it is over: with all of its recordings.
        """
        minute = self._minutes[-1]
        if number != minute.number:
            minute.is_over = minute.has_news = bool(minute.seconds)
            minute = Minute(number)
            unwritten = [each for each in self._minutes if each.has_news]
            self._minutes, self.waits = [*unwritten, minute][-MINUTES:], minute.waits
        requests = self._requests.collect()
        if any(requests):
            minute.seconds[second] = added(minute.seconds.get(second, NONE), requests)
            minute.has_news = True
        for name, rule in list(self.rules.items()):
            numbers = rule.collect()
            if any(numbers):
                minute.add(name, second, numbers, rule)
        outbound = _outbound_rows()
        if outbound != self._outbound:
            self._outbound, minute.has_news = outbound, True

    async def _write(self, minute: Minute) -> None:
        quotas: defaultdict[str, list[str]] = defaultdict(list)
        penalties = []
        for name, quota in owned(self._owner()):
            if quota.name in RESERVED_NAMES:
                penalties.append(name)
            else:
                quotas[name].append(as_text(quota))
        values = {**self._process, "quotas": quotas, "penalties": penalties, "outbound": self._outbound}
        part = str(self._process["process"]), minute.content(values)
        await self.documents.write_part(document_of(minute.number), *part, seconds=LASTS)
        minute.has_news = False


def _outbound_rows() -> list[list[Any]]:
    """The values in the first rows of all sources, with texts that are not too long."""
    rows = islice((row for source in list(outbound_sources) for row in source.outbound_rows()), MOST_ROWS)
    return [[each[:LONGEST_TEXT] if isinstance(each, str) else each for each in row.values()] for row in rows]


_counts: ByStore[Counts] = ByStore()


def counts_of(store: Store) -> Counts:
    """The counts of this process on a store, shared by all users of that object."""
    return _counts.get(store) or _counts.made(store, Counts)
