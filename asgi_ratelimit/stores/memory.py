"""The store without a server: buckets in this process, bounded in number. The reference for all stores."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from secrets import randbits
from typing import TypeVar

from ..algorithms import stamp_of
from ..algorithms.take import ALGORITHMS, State, available, decide, is_ahead, most_at_once, read_own, reset_us, settle
from ..clock import Clock, SystemClock
from ..decision import Charge, Decision, Take
from ..errors import require_number, shows_use
from ..logs import FailureLog
from ..quotas import Quota
from .base import Decisions, Settled, Settlement, checked_operation_ttl, granting, lock, operation_text, repeated
from .documents import MemoryDocuments

T = TypeVar("T")

# How many stored buckets are looked at to find one that makes room for a new one.
LOOKS = 8

# How many are looked at while all of them refuse.
MOST_LOOKS = 64

# The use of a bucket that is full again, and of one without room for a unit.
FULL, REFUSES = 0.0, 2.0


# Each time that so many answers were added, up to twice as many of the oldest are forgotten if they are over.
EXAMINED_EVERY = 64


class Remembered(OrderedDict[Hashable, tuple[float, T]]):
    """The latest answers, at most ``most``: each behind the time in microseconds until which it is one."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def find(self, key: Hashable, now: float) -> T | None:
        """The answer under a key; ``None`` if it is not remembered at the time ``now``."""
        until_us, answer = self.get(key, (0.0, None))
        return answer if now < until_us else None

    def add(self, key: Hashable, answer: T, now: float, until_us: float) -> None:
        """Remember an answer; now and then, forget a few that are over, or the oldest where there is no room."""
        if len(self) >= self._most or not len(self) % EXAMINED_EVERY:
            for _ in range(2 * EXAMINED_EVERY):
                oldest = next(iter(self), None)
                if oldest is None or (len(self) < self._most and now < self[oldest][0]):
                    break
                del self[oldest]
        self[key] = until_us, answer


class MemoryStore:
    """Buckets in this process's memory, for one process, its threads and event loops, or for tests.

    At most ``max_keys`` buckets are stored. Beyond that, a new one replaces a bucket that is full again, which holds no
    information, or else the least used of a few, relative to its quota. A bucket that refuses goes only when all of
    many that are looked at refuse, and the log says so. The latest operations and settlements, also at most
    ``max_keys`` of each, are remembered for ``operation_ttl`` seconds. Raises ``ConfigurationError`` for a ``max_keys``
    below 1, and for an invalid ``operation_ttl``.
    """

    in_process = True

    @shows_use("MemoryStore(max_keys=100_000)")
    def __init__(self, *, max_keys: int = 100_000, operation_ttl: float = 600.0, clock: Clock | None = None) -> None:
        what, use = "max_keys must be a whole number of at least 1", "MemoryStore(max_keys=100_000)"
        self._max_keys: int = require_number(what, max_keys, 1, math.inf, use, int)
        self._operation_ttl_us = checked_operation_ttl(operation_ttl)
        self.clock = clock or SystemClock()
        """The clock that the store decides by."""
        self._values: dict[str, bytes] = {}
        # By their stamps, the quotas under which values were stored.
        self._quotas: dict[int, Quota] = {}
        # The buckets, in the order in which they are looked at when there is no room for a new one.
        self._hand: Iterator[str] = iter(())
        self._taken: Remembered[Decision] = Remembered(max_keys)
        self._settled: Remembered[int] = Remembered(max_keys)
        self._ids = count(randbits(48))  # random, so that tickets of an earlier process are not given back here
        self.documents = MemoryDocuments(self.clock.now_us)
        """The documents that limiters of this process share beside the buckets."""
        # Whether a bucket that refuses has gone since the log last said so.
        self._is_crowded = False
        self._log = FailureLog()

    def __repr__(self) -> str:
        return f"MemoryStore(max_keys={self._max_keys})"

    def __len__(self) -> int:
        """How many buckets are stored."""
        return len(self._values)

    def __bool__(self) -> bool:
        return True

    def take(self, takes: Sequence[Take]) -> Decisions:
        """One decision for each take, in order. It never waits."""
        decisions = Decisions()
        with lock:
            now = float(self.clock.now_us())
            for take in takes:
                decisions.append(self._take(take, now) if take.operation is None else self._take_once(take, now))
        if self._is_crowded:  # a handler of the log may use a store itself, so nothing is logged under the lock
            self._is_crowded = False
            text = f"nearly all of the {self._max_keys} buckets of a MemoryStore refuse, and new ones replace them"
            right = f"MemoryStore(max_keys={10 * self._max_keys})"
            self._log.warn("memory-that-is-full", f"{text}: use Redis, or raise it, {right}", self)
        return decisions

    async def peek(self, take: Take) -> Decision:
        """What ``take`` would answer now; nothing is taken."""
        with lock:
            now = float(self.clock.now_us())
            if take.operation is not None and (earlier := self._taken.find(operation_text(take), now)) is not None:
                return replace(repeated(earlier, take, now), id=0)
            states = [self._state_of(charge, now) for charge in take.charges]
            asked = granting(take, most_at_once(take.charges, states, now)) if take.best_effort else take
            wait_us, after = decide(asked.charges, states, now, take.max_wait_us)
            return Decision(asked, after is not None, wait_us, states, now)

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """Give back units that were charged in excess, or debit missing ones; each settlement once."""
        return self.settle_now(settlements)

    def settle_now(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """``settle`` for code without ``async``."""
        with lock:
            now = float(self.clock.now_us())
            return [self._settle(settlement, now) for settlement in settlements]

    async def reset(self, charges: Sequence[Charge]) -> None:
        """Forget the buckets of these charges, as if they had never been used."""
        with lock:
            for charge in charges:
                self._values.pop(charge.bucket, None)

    async def aclose(self) -> None:
        """Do nothing: there is nothing to close, and the buckets stay."""

    def observe(self, observer: object) -> None:  # as every store
        """Do nothing: there is no server to call."""

    def earlier(self, take: Take) -> Decision | None:
        """The answer that the operation of a take has had, if it is remembered."""
        now = float(self.clock.now_us())
        answer = self._taken.find(operation_text(take), now)
        return None if answer is None else repeated(answer, take, now)

    def held(self, bucket: str) -> tuple[Quota, State] | None:
        """The state of a bucket, and the quota that it was stored under; ``None`` if it is not stored."""
        with lock:
            value = self._values.get(bucket)
            if value is None:
                return None
            quota = self._quotas[stamp_of(value)]
            return quota, read_own(quota, value, float(self.clock.now_us()))

    def _take(self, take: Take, now: float) -> Decision:
        values = self._values
        states = [read_own(charge.quota, values.get(charge.bucket), now) for charge in take.charges]
        if take.best_effort:
            take = granting(take, most_at_once(take.charges, states, now))
        wait_us, after = decide(take.charges, states, now, take.max_wait_us)
        for charge, state in zip(take.charges, after or states):
            # Where nothing is taken after the clock went back, time would stand still
            if (after and charge.cost) or is_ahead(charge.quota, values.get(charge.bucket), now):
                self._write(charge.bucket, charge.quota, state, now)
        if after is None:
            return Decision(take, False, wait_us, states, now)
        return Decision(take, True, wait_us, after, now, next(self._ids))

    def _take_once(self, take: Take, now: float) -> Decision:
        """The decision on a take with an operation, or the one that the operation has had."""
        operation = operation_text(take)
        earlier = self._taken.find(operation, now)
        if earlier is not None:
            return repeated(earlier, take, now)
        decision = self._take(take, now)
        if decision.allowed:
            self._taken.add(operation, decision, now, now + self._operation_ttl_us)
        return decision

    def _settle(self, settlement: Settlement, now: float) -> Settled:
        charge, token = settlement.charge, settlement.token
        value = self._values.get(charge.bucket)
        quota = charge.quota if value is None else self._quotas[stamp_of(value)]  # it may have changed meanwhile
        state = read_own(charge.quota, value, now, is_as_stored=True)
        earlier = self._settled.find((charge.bucket, settlement.id), now) if settlement.id else None
        if earlier is not None or 0.0 < settlement.until_us <= now:
            return Settled(token > 0 and earlier == token, now, self._state_of(charge, now))
        if settlement.id:
            until_us = max(settlement.until_us, now + self._operation_ttl_us)
            self._settled.add((charge.bucket, settlement.id), token, now, until_us)
        if settlement.undone is not None:
            self._taken.pop(operation_text(settlement.undone), None)
        is_changed = quota.stamp != charge.quota.stamp
        after = settle(charge.quota, state, now, settlement.booked, settlement.actual, is_changed)
        if after is not state:
            self._write(charge.bucket, quota, after, now)
        return Settled(True, now, self._state_of(charge, now) if is_changed else after)

    def _state_of(self, charge: Charge, now: float) -> State:
        return read_own(charge.quota, self._values.get(charge.bucket), now)

    def _write(self, bucket: str, quota: Quota, state: State, now: float) -> None:
        if quota.stamp not in self._quotas or len(self._values) >= self._max_keys:
            self._make_room(bucket, quota, now)
        self._values[bucket] = ALGORITHMS[type(quota)].pack(quota, state)

    def _make_room(self, bucket: str, quota: Quota, now: float) -> None:
        """Make room for a bucket and its quota.

        The least used of a few buckets goes for a new one, and one that refuses only if all of many do.
        """
        if len(self._quotas) > 2 * len(self._values) + 1000:  # a function may return another one in each request
            stamps = set(map(stamp_of, self._values.values()))
            self._quotas = {stamp: each for stamp, each in self._quotas.items() if stamp in stamps}
        self._quotas[quota.stamp] = quota
        if bucket in self._values or len(self._values) < self._max_keys:
            return
        least, chosen = REFUSES + 1.0, ""
        for look, other in enumerate(self._looked_at()):
            used = self._use(other, now)
            if used < least:
                least, chosen = used, other
            if used == FULL or look + 1 >= (LOOKS if least < REFUSES else MOST_LOOKS):
                break
        if least == REFUSES:
            self._is_crowded = True
        del self._values[chosen]

    def _looked_at(self) -> Iterator[str]:
        """The buckets to look at, from where the last look ended; all of them once before one comes again."""
        for _ in range(2):
            for bucket in self._hand:
                if bucket in self._values:
                    yield bucket
            self._hand = iter(list(self._values))

    def _use(self, bucket: str, now: float) -> float:
        """The part of its quota that a bucket has in use."""
        value = self._values[bucket]
        quota = self._quotas[stamp_of(value)]
        state = read_own(quota, value, now)
        if reset_us(quota, state, now) <= 0.0:
            return FULL
        units, _ = available(quota, state, now)
        return REFUSES if units < 1 else 1.0 - units / (quota.most + 1.0)
