"""What was taken here while the store was out, and what was to be settled there.

The store is told when it is back, so that an outage is not a second quota for anybody, and costs nobody a refund.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from random import getrandbits

from ....algorithms import State, used
from ....clock import Clock
from ....decision import Bucket, Charge, SettledCharge, Settlement
from ...memory import MemoryStore

MAX_DEBTS = 10_000
"""Of how many buckets it is remembered, at the most; what the others have taken is forgiven."""


class Debts:
    """The buckets that were charged in ``local``, by the time of ``clock``, in place of the store."""

    def __init__(self, local: MemoryStore, clock: Clock) -> None:
        self._local = local
        self._clock = clock
        self._begun: dict[Bucket, tuple[Charge, Charge, State | None]] = {}
        self._unpaid: deque[Settlement] = deque()

    def __bool__(self) -> bool:
        return bool(self._begun or self._unpaid)

    def note(self, charge: Charge, here: Charge, state: State | None) -> None:
        """``charge`` was taken as ``here`` in the local store; before that the bucket was in this state there."""
        if len(self._begun) < MAX_DEBTS:
            self._begun.setdefault(charge.bucket, (charge, here, state))

    def due(self, owns: Callable[[Charge], bool]) -> Iterator[Settlement]:
        """What the store is to be told of the buckets that it ``owns``, one by one; each is due once."""
        for _ in range(len(self._unpaid)):
            settlement = self._unpaid.popleft()
            if owns(settlement.lines[0].charge):
                yield settlement
            else:
                self._unpaid.append(settlement)
        for bucket, (charge, here, state) in list(self._begun.items()):
            if owns(charge) and self._begun.pop(bucket, None) is not None:
                units = self._taken_since(here, state)
                if units > 0.0:
                    yield _owed(charge, units)

    def postpone(self, settlement: Settlement) -> None:
        """Carry this out when the store is back, for each bucket by itself; it does no harm if it was done already."""
        if len(self._unpaid) < MAX_DEBTS:
            self._unpaid.extend([replace(settlement, lines=(line,)) for line in settlement.lines])

    def _taken_since(self, here: Charge, begun: State | None) -> float:
        """The units that count now, but for those that count from before."""
        now = float(self._clock.now_us())
        state = self._local.state_of(here)
        before = 0.0 if begun is None else used(here.quota, begun, now)
        return 0.0 if state is None else used(here.quota, state, now) - before


def _owed(charge: Charge, units: float) -> Settlement:
    """A charge of ``units`` more, whether they conform or not."""
    line = SettledCharge(Charge(charge.quota, charge.key, units, charge.name), 0.0, 0.0, 0.0, 2 * units)
    return Settlement(float(getrandbits(53)), (line,))
