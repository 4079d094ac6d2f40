"""The arithmetic of admission: pure functions of a quota, a state, the time and a cost.

Each kind of quota has a module, and all of these modules have the same functions. ``take`` decides the charges of a
request as one. No ``await``, no clock, no lock, no logging in this package.
``stores/redis/rate_limit.lua`` has the same functions under the same names in the same order, with the same operations
on doubles, so that both give bit-identical answers.

Times are whole microseconds as floats, and units are floats. A state is a ``NamedTuple`` that stands for a moment and
is never changed. Every kind is a queue: slots are booked in order, so what fits at one moment fits at any later one.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

NEVER: Final = math.inf

# A wait this long (142 years) or longer is never: beyond it, a double no longer holds every microsecond.
NEVER_US: Final = 2.0**52

# What fits after less than this part of a microsecond fits now: it is the noise of doubles.
FITS_US: Final = 2e-4

# What a wait may be above a whole number and still round down to it. Less than ``FITS_US``, so that what is refused
# for a time fits when that time is over, however the doubles are rounded.
NOISE_US: Final = 1e-4


class Booked(NamedTuple):
    """A charge of ``cost`` units for the time ``slot``; ``at`` and ``place`` are of when it was booked."""

    at: float
    slot: float
    place: float
    cost: float
