"""The shape of a bucket's state, and the bounds of its parts."""

from __future__ import annotations

import math
from typing import Any, Final, TypeAlias

Gap: TypeAlias = tuple[float, float]
Gaps: TypeAlias = tuple[Gap, ...]
Low: TypeAlias = tuple[float, float]
Lows: TypeAlias = tuple[Low, ...]
BusyPeriod: TypeAlias = tuple[float, float, float]
Record: TypeAlias = tuple[()] | tuple[BusyPeriod, *Lows]
"""What a token bucket records of its charges; ``giving_back/lows.py`` says what the numbers are."""

State: TypeAlias = tuple[Any, float, int, Gaps, Record, bytes]

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
