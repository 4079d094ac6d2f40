"""What all kinds of quotas share: waits in whole microseconds, and the record of a charge that may come back."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

NEVER: Final = math.inf

NEVER_US: Final = 2.0**52
"""A wait this long (142 years) or longer is never: beyond it, a double no longer holds every microsecond."""

FITS_US: Final = 2e-4
"""What fits after less than this part of a microsecond fits now: it is the noise of doubles."""

NOISE_US: Final = 1e-4
"""What a wait may be above a whole number and still round down to it. Less than ``FITS_US``, so that what is refused
for a time fits when that time is over, however the doubles are rounded."""


class Booked(NamedTuple):
    """A charge of ``cost`` units for the time ``slot``; ``at`` and ``place`` are of when it was booked."""

    at: float
    slot: float
    place: float
    cost: float
