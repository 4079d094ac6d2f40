"""The outage ledger: what this process admitted while the store was out, and what was to be settled there.

The store is charged with it when it is back, so that an outage gives nobody a second quota, and no refund is lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from random import getrandbits

from ....algorithms import State, used
from ....clock import Clock
from ....decision import Charge, SettledCharge, Settlement
from ...memory import MemoryStore

MAX_ENTRIES = 10_000
"""The most buckets, and the most settlements, in a ledger; what is beyond is never charged."""


class OutageLedger:
    """The buckets that were charged in ``local``, by the time of ``clock``, in place of the store."""

    def __init__(self, local: MemoryStore, clock: Clock) -> None:
        self._local = local
        self._clock = clock
        self._entries: dict[str, tuple[Charge, Charge, State | None]] = {}
        self._postponed: deque[Settlement] = deque()

    def __bool__(self) -> bool:
        return bool(self._entries or self._postponed)

    def record(self, charge: Charge, local_charge: Charge, state: State | None) -> None:
        """``charge`` was taken as ``local_charge`` in the local store, whose bucket was in ``state`` before."""
        if len(self._entries) < MAX_ENTRIES:
            self._entries.setdefault(charge.bucket, (charge, local_charge, state))

    def postpone(self, settlement: Settlement) -> None:
        """Keep a settlement until the store is back, for each bucket by itself; settling twice does no harm."""
        if len(self._postponed) < MAX_ENTRIES:
            self._postponed.extend([replace(settlement, settled_charges=(one,)) for one in settlement.settled_charges])

    def collect(self, is_here: Callable[[Charge], bool]) -> Iterator[Settlement]:
        """Remove and yield what the store is to be charged with, for the buckets that ``is_here`` names."""
        for _ in range(len(self._postponed)):
            settlement = self._postponed.popleft()
            if is_here(settlement.settled_charges[0].charge):
                yield settlement
            else:
                self._postponed.append(settlement)
        for bucket, (charge, local_charge, state) in list(self._entries.items()):
            if is_here(charge) and self._entries.pop(bucket, None) is not None:
                units = self._used_since(local_charge, state)
                if units > 0.0:
                    yield _charging(charge, units)

    def _used_since(self, charge: Charge, start: State | None) -> float:
        """The units in use now, less those that were in use in the state ``start``."""
        now = float(self._clock.now_us())
        state = self._local.state_of(charge)
        before = 0.0 if start is None else used(charge.quota, start, now)
        return 0.0 if state is None else used(charge.quota, state, now) - before


def _charging(charge: Charge, units: float) -> Settlement:
    """A settlement that charges ``units`` more, whether they fit or not."""
    settled = SettledCharge(Charge(charge.quota, charge.key, units, charge.name), 0.0, 0, 0.0, 0.0, 2 * units)
    return Settlement(float(getrandbits(53)), (settled,))
