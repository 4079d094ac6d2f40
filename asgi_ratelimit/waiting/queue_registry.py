"""The registry of waiters: all callers of one store in this process wait in the same queues."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from threading import Lock, RLock

from ..clock import SystemClock
from ..counts import Row, outbound_sources
from ..stores import ByStore, CameBack, Store, when_units_come_back
from .background_loop import reset_in_child
from .concurrency import ConcurrencyLimit
from .slots.call_spacing import ON_THE_WAY_US
from .slots.slot_queues import SlotQueues
from .wakeups import BucketWakeUps


class OpenBlocks:
    """How many ``spend`` blocks of this process are under way on each bucket. Thread-safe."""

    def __init__(self) -> None:
        self.reset()
        reset_in_child(self)

    def reset(self) -> None:
        """Forget all blocks."""
        self._lock = RLock()  # the garbage collector may call end() in here, by closing a forgotten body
        self._counts: dict[str, int] = {}

    def begin(self, buckets: Iterable[str]) -> None:
        """Count a block on these buckets that is entered."""
        with self._lock:
            for bucket in buckets:
                self._counts[bucket] = self._counts.get(bucket, 0) + 1

    def end(self, buckets: Iterable[str]) -> None:
        """Count a block on these buckets that is over."""
        with self._lock:
            for bucket in buckets:
                self._counts[bucket] = self._counts.get(bucket, 1) - 1
                if self._counts[bucket] <= 0:
                    del self._counts[bucket]

    def on_any(self, buckets: Iterable[str]) -> bool:
        """Whether there is a block on any of these buckets."""
        return any(bucket in self._counts for bucket in buckets)


@dataclass(slots=True)
class Waiters:
    """The callers that wait over one store: for booked slots, in front of their own keys, and to spend."""

    slots: SlotQueues
    own_keys: ConcurrencyLimit = field(default_factory=ConcurrencyLimit)
    spenders: ConcurrencyLimit = field(default_factory=ConcurrencyLimit)
    """The first caller of each set of buckets is active, the others wait for it."""
    settled: BucketWakeUps = field(default_factory=BucketWakeUps)
    """The wake-ups of the first callers."""
    blocks: OpenBlocks = field(default_factory=OpenBlocks)
    departing: ConcurrencyLimit = field(default_factory=ConcurrencyLimit)
    """The calls of each bucket that have their slots and wait until they may leave; the first one is active."""

    def units_came_back(self, came_back: CameBack) -> None:
        """Wake the callers of these charges' buckets, to which units have come back."""
        self.slots.units_came_back(came_back)
        self.settled.wake([charge for charge, _ in came_back])


class _Registry:
    """The waiters of every store in use."""

    def __init__(self) -> None:
        self._waiters: ByStore[Waiters] = ByStore()
        self.reset()
        reset_in_child(self)

    def reset(self) -> None:
        self._lock = Lock()

    def outbound_rows(self) -> Iterator[Row]:
        """How many callers of this process wait for slots, by the name of their limiter."""
        counts = sum([waiters.slots.counts() for waiters in self._waiters.values()], Counter[str]())
        for name, waiting in sorted(counts.items()):
            yield {"name": name, "waiting": waiting}

    def waiters_of(self, store: Store) -> Waiters:
        with self._lock:
            waiters = self._waiters.get(store)
            if waiters is None:
                waiters = self._waiters[store] = Waiters(SlotQueues(_on_the_way_us(store), not store.in_process))
                when_units_come_back(store, waiters.units_came_back)
            return waiters


def _on_the_way_us(store: Store) -> float:
    """The time that calls need on their way, which is 0 unless the store's time is real."""
    clock = store.clock
    return ON_THE_WAY_US if clock is None or isinstance(clock, SystemClock) else 0.0


_registry = _Registry()
outbound_sources.add(_registry)


def waiters_of(store: Store) -> Waiters:
    """The waiters of a store, the same for everyone who uses that object."""
    return _registry.waiters_of(store)
