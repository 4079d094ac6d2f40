"""The shape of a bucket's state, and how windows count."""

from __future__ import annotations

import math
from typing import Any, Final, TypeAlias

from ..decision import SettledCharge
from ..quotas import FixedWindow, RollingWindow

Gap: TypeAlias = tuple[float, float]
Gaps: TypeAlias = tuple[Gap, ...]
Pairs: TypeAlias = tuple[tuple[float, float], ...]
Lows: TypeAlias = tuple[Any, ...]
State: TypeAlias = tuple[Any, float, int, Gaps, Lows, bytes]

Outlook: TypeAlias = tuple[float, float, float]
"""The whole units that can be taken now, and the microseconds until one more can be, and until all can be."""

Taken: TypeAlias = tuple["State | None", float, Outlook]
"""The new state (``None`` if refused), the wait in microseconds, and the outlook from the resulting state."""

PlainOutcome: TypeAlias = tuple[float, float, int, float, float, int]
"""The outcome of one charge that a token bucket granted at once, if only its level counts: the level before, ``last``,
the generation, the time, the level after, and the birth of the decision."""

GeneralOutcome: TypeAlias = tuple[Taken, State, float, int]
"""The outcome of any other charge that does not wait: what was taken, the state before, the time, and the birth."""

Outcome: TypeAlias = PlainOutcome | GeneralOutcome

Booking: TypeAlias = tuple[float, PlainOutcome]
"""The outcome of one charge of a token bucket that may wait, if only its level counts: the microseconds until its slot,
and the outcome of a charge that does not wait."""

PLAIN_PARTS: Final = 6
"""The number of parts of a ``PlainOutcome``; the other kind has another number."""

NEVER_US = 2.0**52
"""A wait this long (142 years) or longer is never: beyond it, adding 1 microsecond to the time may change nothing."""

NOISE = 1e-12
"""The part of a level by which the rounding of doubles may misplace a slot of a queue that drains at two rates."""

MAX_PIECES = 256
"""The most gaps of a token bucket's state, runs of a fixed window's, and parts ahead of a rolling window's."""

PIECES_OF_TAKE = 512
"""The most of them that all charges of a take read together: with three or more charges, each leaves some out."""

MAX_LOWS = 8
"""The most lows that a state holds."""

BIRTH_BITS = 48
"""A birth is a whole number from 0 up to, but not including, 2 to this power."""

GENERATIONS = 2**31
"""The generation of a new state is its birth modulo this. Births are random, so two states of a bucket, the second made
after the first had expired, have the same generation with a chance of one in 2**31."""

NEVER = math.inf


FINE = 2.0**30
"""Below a limit of this many units, windows count millionths of a unit; above it, whole ones."""


def snapped(quota: FixedWindow | RollingWindow, units: float) -> float:
    """``units`` as a window counts them: a whole number, or a multiple of a millionth, but not 0 unless they are 0.

    So sums are exact, and giving back leaves no remainder: ten costs of 0.1 are 1, and 0 again after all ten are given
    back.
    """
    if units % 1.0 == 0.0:
        return units
    if quota.limit < FINE:
        fine = units * 1e6 + 0.5  # rounded without a call, because windows do this for each of their parts
        fine = (fine - fine % 1.0) / 1e6
        return fine if fine > 1e-6 else 1e-6
    return float(math.ceil(units))


def given_back(quota: FixedWindow | RollingWindow, count: float, cost: float, actual: float) -> float:
    """The ``count`` of a window or part in which a ``cost`` came to only ``actual`` units."""
    left = count - (snapped(quota, cost) - snapped(quota, actual))
    return snapped(quota, left) if left > 0.0 else 0.0


def debit_beside(quota: FixedWindow | RollingWindow, debit: float, count: float, settled: SettledCharge) -> float:
    """The ``debit`` after a charge came to less by more than its window or part counts: the rest was in the debit."""
    if debit <= 0.0:
        return 0.0
    beyond = snapped(quota, settled.charge.cost) - snapped(quota, settled.actual) - count
    return snapped(quota, max(debit - beyond, 0.0)) if beyond > 0.0 else debit


def whole_units(quota: FixedWindow | RollingWindow, count: float) -> float:
    """The most whole units that fit into a window beside ``count``."""
    limit = snapped(quota, quota.limit)
    units = float(math.floor(limit - count + 0.5))
    while units > 0.0 and (units > quota.limit or snapped(quota, count + units) > limit):
        units -= 1.0
    return max(units, 0.0)
