"""The store that needs nothing: buckets in this process, bounded in number. The reference for all stores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush, heapreplace
from threading import Lock

from ..algorithms import State, decide, decide_simple, foresee, reset_us, settle
from ..clock import Clock, SystemClock, float_us_of
from ..decision import Bucket, Charge, Decision, Settlement, Take
from ..errors import ConfigurationError
from ..quotas import Quota

LOOKS = 8
"""How many buckets are looked at, at the most, to make room for a new one."""


@dataclass(slots=True)
class _Kept:
    """What is kept of a bucket: the quota that it was last charged under, and the state that left it in.

    ``mark`` is that of the store that keeps it, ``None`` once it does no more.
    """

    quota: Quota
    state: State | None
    mark: object


class MemoryStore:
    """Buckets in this process's memory, for one process, its threads and event loops, or for tests.

    At most ``max_keys`` buckets are kept. To make room for a new one, a bucket goes that is full again, for it holds
    no information; where there is none, the one among a few that is about to be full soonest.
    Raises ``ConfigurationError`` for a ``max_keys`` below 1.
    """

    in_process = True

    def __init__(self, *, max_keys: int = 100_000, clock: Clock | None = None) -> None:
        if not isinstance(max_keys, int) or max_keys < 1:
            raise ConfigurationError(
                f"max_keys must be a whole number of at least 1, not {max_keys!r}: MemoryStore(max_keys=100_000)"
            )
        self._max_keys = max_keys
        self._clock = clock or SystemClock()
        self._now_us = float_us_of(self._clock)
        self._lock = Lock()
        self._acquire, self._release = self._lock.acquire, self._lock.release  # by name they take half the time
        self._buckets: dict[Bucket, _Kept] = {}
        self._mark = object()
        # One entry for each bucket: a time at which it will not be full any earlier.
        self._fullness: list[tuple[float, Bucket]] = []

    def __repr__(self) -> str:
        return f"MemoryStore(max_keys={self._max_keys})"

    @property
    def clock(self) -> Clock:
        """Whose time it goes by."""
        return self._clock

    async def take(self, takes: Sequence[Take]) -> list[Decision]:
        """One decision for each take, in their order. It never waits."""
        return self.take_soon(takes)

    def take_soon(self, takes: Sequence[Take]) -> list[Decision]:
        """``take``, without a coroutine."""
        charge = takes[0].only if len(takes) == 1 else None
        if charge is None:
            return [self._take(take) for take in takes]
        take = takes[0]
        self._acquire()
        try:
            now = self._now_us()
            kept = charge.kept
            if kept is None or kept.mark is not self._mark:
                kept = charge.kept = self._buckets.get(charge.bucket)
            if kept is None or kept.quota is not charge.quota:
                return [self._take_first(take, charge, now)]
            decision, state = decide_simple(take, charge, kept.state, now)
            if state is not None:
                kept.state = state
            return [decision]
        finally:
            self._release()

    async def peek(self, take: Take) -> Decision:
        """What ``take`` would answer now; nothing is taken."""
        with self._lock:
            states = [self._state(charge) for charge in take.charges]
            return foresee(take, states, self._now_us())

    async def settle(self, settlement: Settlement) -> None:
        """Give back what a take had too much, or charge what it had too little; a second time does nothing."""
        with self._lock:
            now = self._now_us()
            charges = [line.charge for line in settlement.lines]
            states = [self._state(charge) for charge in charges]
            for charge, state in zip(charges, settle(settlement, states, now)):
                if state is not None:
                    self._put(charge, state, now)

    async def reset(self, charges: Sequence[Charge]) -> None:
        """Forget the buckets of these charges, as if they had never been used."""
        with self._lock:
            for charge in charges:
                kept = self._buckets.get(charge.bucket)
                if kept is not None:
                    kept.state = None

    async def aclose(self) -> None:
        """Nothing to let go of; the buckets stay."""

    def adopt(self, charge: Charge, state: State) -> None:
        """Go on from a state that another store left this charge's bucket in, unless more was used here since."""
        with self._lock:
            now = self._now_us()
            own = self._state(charge)
            if own is None or reset_us(charge.quota, own, now) < reset_us(charge.quota, state, now):
                self._put(charge, state, now)

    def state_of(self, charge: Charge) -> State | None:
        """The state of this charge's bucket, ``None`` where it was never used."""
        with self._lock:
            return self._state(charge)

    def _take(self, take: Take) -> Decision:
        charges = take.charges
        with self._lock:
            now = self._now_us()
            decision, written = decide(take, list(map(self._state, charges)), now)
            for charge, state in zip(charges, written):
                if state is not None:
                    self._put(charge, state, now)
            return decision

    def _take_first(self, take: Take, charge: Charge, now: float) -> Decision:
        """A take of one charge whose bucket is not kept, or was last charged under another quota."""
        decision, state = decide_simple(take, charge, self._state(charge), now)
        if state is not None:
            self._put(charge, state, now)
        return decision

    def _state(self, charge: Charge) -> State | None:
        """What is known of a bucket; under another kind of quota or period it counts as never used."""
        kept, quota = self._buckets.get(charge.bucket), charge.quota
        if kept is None:
            return None
        return kept.state if kept.quota is quota or kept.quota.cut == quota.cut else None

    def _put(self, charge: Charge, state: State, now: float) -> None:
        bucket, quota = charge.bucket, charge.quota
        kept = self._buckets.get(bucket)
        if kept is not None:
            kept.quota, kept.state = quota, state
            return
        self._look(now, 2)  # so that what is noted of those in use keeps up with them
        if len(self._buckets) >= self._max_keys:
            self._make_room(now)
        heappush(self._fullness, (now + reset_us(quota, state, now), bucket))
        self._buckets[bucket] = _Kept(quota, state, self._mark)

    def _make_room(self, now: float) -> None:
        self._look(now, LOOKS)
        self._buckets.pop(heappop(self._fullness)[1]).mark = None

    def _look(self, now: float, most: int) -> None:
        """Bring the notes of the buckets that seem to be full soonest up to date, until the first one is true."""
        for _ in range(min(most, len(self._fullness))):
            noted, bucket = self._fullness[0]
            full_at = self._full_at(bucket, now)
            if full_at <= max(noted, now):
                return
            heapreplace(self._fullness, (full_at, bucket))

    def _full_at(self, bucket: Bucket, now: float) -> float:
        kept = self._buckets[bucket]
        return now if kept.state is None else now + reset_us(kept.quota, kept.state, now)
