"""The store without a server: buckets in this process, bounded in number. The reference for all stores."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import repeat
from numbers import Integral
from random import getrandbits
from threading import Lock
from weakref import WeakValueDictionary

from ..algorithms import (
    ALGORITHMS,
    BIRTH_BITS,
    GENERATIONS,
    Booking,
    Outcome,
    Outlook,
    State,
    admit,
    book,
    current,
    decide,
    foresee,
    pack,
    refused,
    reset_us,
    settle,
    unpack,
    used,
)
from ..algorithms.packed_states import PLAIN_SIZE, pack_plain, unpack_plain
from ..argument_errors import checked_clock, shows_use
from ..clock import Clock, SystemClock, ns_of
from ..decision import Charge, ChargeTemplate, Decision, Redemption, Settlement, Take
from ..errors import ConfigurationError
from ..quotas import SECOND_US
from .bounded import UNUSED, BoundedValues, packed_in, value_of
from .documents import MemoryDocuments
from .operations import (
    OPERATION_TTL,
    Operations,
    TakenBefore,
    checked_operation_ttl,
    decided_again,
    of_quotas,
    redeemed,
    settlement_text,
    take_text,
)

_LATEST = GENERATIONS - 1


class MemoryStore:
    """Buckets in this process's memory, for one process, its threads and event loops, or for tests.

    At most ``max_keys`` buckets are stored. Beyond that, a new one replaces a bucket that is full again, which holds no
    information, or else the least used one among a few, relative to its quota. A bucket that refuses goes only when
    seven eighths of all buckets refuse.
    The latest operations, also at most ``max_keys``, are remembered for ``operation_ttl`` seconds, and tickets until
    they are over. Raises ``ConfigurationError`` for a ``max_keys`` below 1, and for an invalid ``operation_ttl`` or
    ``clock``.
    """

    in_process = True
    remembers_operations = True

    @shows_use("MemoryStore(max_keys=100_000)")
    def __init__(
        self, *, max_keys: int = 100_000, operation_ttl: float = OPERATION_TTL, clock: Clock | None = None
    ) -> None:
        if not isinstance(max_keys, (int, Integral)) or isinstance(max_keys, bool) or max_keys < 1:
            raise ConfigurationError(
                f"max_keys must be a whole number of at least 1, not {max_keys!r}: MemoryStore(max_keys=100_000)"
            )
        self._max_keys = max_keys = int(max_keys)
        self._operation_ttl_us = checked_operation_ttl(operation_ttl)
        self._takes: Operations[TakenBefore] = Operations(max_keys)
        self._settlements: Operations[float] = Operations(max_keys)
        self._tickets: Operations[float] = Operations(max_keys)
        self._clock = checked_clock(clock, "MemoryStore(clock=SteppedClock())") or SystemClock()
        self._now_ns = ns_of(self._clock)
        self._values = BoundedValues(max_keys)
        self._shards, self._mask = self._values.shards, self._values.mask
        self._documents = MemoryDocuments(self._clock.now_us)
        self._births = getrandbits(BIRTH_BITS - 1)  # not 0, so that tickets of an earlier process are not given back
        self.replace_locks()
        _stores[id(self)] = self

    def __repr__(self) -> str:
        return f"MemoryStore(max_keys={self._max_keys})"

    def __len__(self) -> int:
        """How many buckets are stored."""
        return len(self._values)

    def __bool__(self) -> bool:
        return True

    def replace_locks(self) -> None:
        """Replace all locks in a forked child: the threads that have them, or wait for them, do not exist there."""
        self._lock = Lock()
        self._acquire, self._release = self._lock.acquire, self._lock.release  # takes half the time of a with statement
        self._documents.lock = Lock()

    @property
    def clock(self) -> Clock:
        """The clock of the store."""
        return self._clock

    @property
    def documents(self) -> MemoryDocuments:
        """The documents that limiters of this process share beside the buckets."""
        return self._documents

    async def take(self, takes: Sequence[Take]) -> list[Decision]:
        """One decision for each take, in order. It never waits."""
        return [self.submit(take) for take in takes]

    def submit(self, take: Take) -> Decision:
        """The decision of one take."""
        with self._lock:
            now = self._now_us()
            decision = self._decide(take, now) if take.operation is None else self._decide_once(take, now)
            if self._values.has_warning:
                self._warn()
            return decision

    def submit_charge(self, template: ChargeTemplate, bucket: str) -> Outcome:
        """The outcome of a take of one charge without a wait."""
        quota = template.quota
        values = self._shards[hash(bucket) & self._mask]
        self._acquire()
        try:
            now = float(self._now_ns() // 1000)
            value = values.get(bucket)
            if value is None and self._values.refusing.count:
                value = self._values.refusing.get(bucket)
            self._births = birth = self._births + 1
            if value is None:
                level, last, generation = 0.0, now, birth & _LATEST
            elif len(value) == PLAIN_SIZE:
                stamp, last, level, generation = unpack_plain(value)
                if stamp != quota.stamp or last > now:
                    return self._decide_charge(template, bucket, now, birth)
            else:
                return self._decide_charge(template, bucket, now, birth)
            if not quota.is_simple:
                return self._decide_charge(template, bucket, now, birth)
            after = admit(quota, level, now - last, template.cost)  # type: ignore[arg-type]  # it is a token bucket
            if after is None:
                taken = refused(quota, level, now - last, template.cost)  # type: ignore[arg-type]  # as above
                if taken is None:
                    return self._decide_charge(template, bucket, now, birth)
                return taken, (level, last, generation, (), (), b""), now, birth
            left = pack_plain(quota.stamp, now, after, generation)
            is_full = self._values.count >= self._max_keys
            if value is None:
                if is_full:
                    self._values.insert(bucket, left, now)
                    if self._values.has_warning:
                        self._warn()
                    return level, last, generation, now, after, birth
                self._values.count += 1  # as ``insert`` does it, without the call
            elif is_full and values.pop(bucket, None) is None:  # it becomes the newest one
                self._values.refusing.take_out(bucket)
            values[bucket] = left
            return level, last, generation, now, after, birth
        finally:
            self._release()

    def book(self, charge: Charge, max_wait_us: float) -> Booking | None:
        """Take one charge at the earliest slot; ``None`` if ``submit`` has to decide, and then nothing is taken.

        Nothing is recorded for settlements.
        """
        quota, bucket = charge.quota, charge.bucket
        if not quota.is_simple or not charge.cost:
            return None
        values = self._shards[hash(bucket) & self._mask]
        self._acquire()
        try:
            now = float(self._now_ns() // 1000)
            value = values.get(bucket)
            if value is None and self._values.refusing.count:
                value = self._values.refusing.get(bucket)
            self._births = birth = self._births + 1
            if value is None:
                level, last, generation = 0.0, now, birth & _LATEST
            elif len(value) == PLAIN_SIZE:
                stamp, last, level, generation = unpack_plain(value)
                if stamp != quota.stamp or last > now:
                    return None
            else:
                return None
            booked = book(quota, level, now - last, charge.cost, max_wait_us)  # type: ignore[arg-type]  # it is simple
            if booked is None:
                return None
            after, wait_us = booked
            left = pack_plain(quota.stamp, now, after, generation)
            if value is None or self._values.count >= self._max_keys:
                self._values.put(bucket, left, now)
                if self._values.has_warning:
                    self._warn()
            else:
                values[bucket] = left
            return wait_us, (level, last, generation, now, after, birth)
        finally:
            self._release()

    def _decide_charge(self, template: ChargeTemplate, bucket: str, now: float, birth: int) -> Outcome:
        """``submit_charge`` for quotas and states of any kind, and for refusals."""
        charge, quota = template.charge(bucket), template.quota
        algorithm, stored = ALGORITHMS[type(quota)], self._state(charge)
        state = current(quota, stored, now, birth)
        taken = after, _, outlook = algorithm.take(quota, state, now, charge.cost, 0.0)
        if after is not None:
            self._store(charge, after, now, outlook)
            if self._values.has_warning:
                self._warn()
        elif stored is not None and stored is not state:  # a clock had left it in the future
            self._store(charge, state, now)
        return taken, state, now, birth

    def _warn(self) -> None:
        """Log that a refusing bucket has gone, without the lock: a handler may take from this store. Called last."""
        self._release()
        try:
            self._values.warn()
        finally:
            self._acquire()

    async def peek(self, take: Take) -> Decision:
        """What ``take`` would answer now; nothing is taken."""
        with self._lock:
            states = [self._state(charge, len(take.charges)) for charge in take.charges]
            return foresee(take, states, self._now_us())

    async def redeem(self, redemption: Redemption) -> Decision:
        """The decision of a ticket, which is allowed once."""
        with self._lock:
            now = self._now_us()
            states = list(map(self._state, redemption.charges, repeat(len(redemption.charges))))
            foreseen = foresee(redemption.take, states, now)
            return redeemed(foreseen, self._remember_first(redemption, now))

    async def settle(self, settlement: Settlement) -> None:
        """Give back units that a take charged in excess, or debit missing ones; a second call does nothing."""
        with self._lock:
            now = self._now_us()
            if not self._remember_first(settlement, now):
                return
            if settlement.undone is not None:
                self._takes.forget(take_text(settlement.undone))
            charges = settlement.charges
            states = [self._state(charge, len(charges)) for charge in charges]
            for charge, state in zip(charges, settle(settlement, states, now, self._born(len(charges)))):
                if state is not None:
                    self._store(charge, state, now)

    async def reset(self, charges: Sequence[Charge]) -> None:
        """Forget the buckets of these charges, as if they had never been used."""
        with self._lock:
            for charge in charges:
                if self._values.get(charge.bucket) is not None:
                    self._values.put(charge.bucket, UNUSED, 0.0)

    async def aclose(self) -> None:
        """Do nothing: there is nothing to close, and the buckets stay."""

    def adopt(self, charge: Charge, state: State) -> None:
        """Continue from a state that another store left this bucket in, unless more was used here since."""
        with self._lock:
            now = self._now_us()
            own = self._state(charge)
            if own is None or used(charge.quota, own, now) < used(charge.quota, state, now):
                self._store(charge, state, now)

    def state_of(self, charge: Charge) -> State | None:
        """The state of this charge's bucket; ``None`` if it was never used."""
        with self._lock:
            return self._state(charge)

    def _decide(self, take: Take, now: float) -> Decision:
        charges = take.charges
        decision, written = decide(
            take, list(map(self._state, charges, repeat(len(charges)))), now, self._born(len(charges))
        )
        if len(charges) > 1:
            self._values.under_way = {charge.bucket for charge in charges}
        for charge, state, quota_state in zip(charges, written, decision.states):
            if state is not None:
                outlook = quota_state.remaining, quota_state.more_after * SECOND_US, quota_state.reset_after * SECOND_US
                self._store(charge, state, now, outlook)
        self._values.under_way = ()
        return decision

    def _decide_once(self, take: Take, now: float) -> Decision:
        """The decision of a take with an operation: that of the first one that was allowed."""
        text = take_text(take)
        taken = self._takes.find(text, now)
        if taken is not None:
            at, birth, values, quotas = taken
            take = of_quotas(take, quotas)
            states = [unpack(charge.quota, value, len(values)) for charge, value in zip(take.charges, values)]
            return decided_again(take, states, at, birth, now)
        birth = self._births + 1
        values = [packed_in(self._value(charge)) or None for charge in take.charges]
        decision = self._decide(take, now)
        if decision.allowed:
            outcome = now, birth, values, [charge.quota for charge in take.charges]
            self._takes.add(text, outcome, now, now + self._operation_ttl_us)
        return decision

    def _remember_first(self, settled: Settlement | Redemption, now: float) -> bool:
        """Whether this is the first settlement or redemption of its kind; it is remembered from now on."""
        text, until_us = settlement_text(settled), settled.until_us
        is_over = until_us and now >= until_us
        if is_over or any(each.find(text, now) is not None for each in (self._settlements, self._tickets)):
            return False
        (self._tickets if until_us else self._settlements).add(
            text, now, now, max(until_us, now + self._operation_ttl_us)
        )
        return True

    def _born(self, count: int) -> int:
        """The first of ``count`` generations that no bucket has had."""
        self._births += count
        return self._births - count + 1

    def _now_us(self) -> float:
        return float(self._now_ns() // 1000)

    def _value(self, charge: Charge) -> bytes:
        """The stored value of a bucket; empty if it was never used."""
        return self._values.get(charge.bucket) or b""

    def _state(self, charge: Charge, charges: int = 1) -> State | None:
        value = self._value(charge)
        return unpack(charge.quota, packed_in(value), charges) if value else None

    def _store(self, charge: Charge, state: State, now: float, outlook: Outlook | None = None) -> None:
        quota = charge.quota
        units, more_us, full_us = outlook or ALGORITHMS[type(quota)].outlook(quota, state, now)
        if outlook is None or state[5]:
            full_us = reset_us(quota, state, now)
        self._values.put(charge.bucket, value_of(quota, pack(quota, state), now, (units, more_us, full_us)), now)


_stores: WeakValueDictionary[int, MemoryStore] = WeakValueDictionary()  # a store need not be hashable


def _replace_locks() -> None:
    for store in list(_stores.values()):
        store.replace_locks()


os.register_at_fork(after_in_child=_replace_locks)
