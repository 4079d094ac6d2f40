"""The arithmetic of admission: pure functions of a quota, a state, the time and a cost.

Each kind of quota has a module, and all of these modules have the same functions. ``take`` decides the charges of a
request as one. No ``await``, no clock, no lock, no logging in this package.
``stores/redis/rate_limit.lua`` has the same functions under the same names in the same order, with the same operations
on doubles, so that both give bit-identical answers.

Times are whole microseconds as floats, and units are floats. A state is a ``NamedTuple`` that stands for a moment and
is never changed. Every kind is a queue: slots are booked in order, so what fits at one moment fits at any later one.
"""

from .common import NEVER, NEVER_US, Booked
from .fixed_window import FixedWindowState
from .in_flight import InFlightState
from .packing import is_ahead, pack, read, read_own, stamp_of, used_units
from .rolling_window import RollingWindowState
from .take import (
    ALGORITHMS,
    State,
    available,
    booked_ahead,
    decide,
    in_use,
    most_at_once,
    place_of,
    reset_us,
    settle,
    taken_now,
    unused,
    wait,
)
from .token_bucket import TokenBucketState

__all__ = [
    "ALGORITHMS",
    "NEVER",
    "NEVER_US",
    "Booked",
    "FixedWindowState",
    "InFlightState",
    "RollingWindowState",
    "State",
    "TokenBucketState",
    "available",
    "booked_ahead",
    "decide",
    "in_use",
    "is_ahead",
    "most_at_once",
    "pack",
    "place_of",
    "read",
    "read_own",
    "reset_us",
    "settle",
    "stamp_of",
    "taken_now",
    "unused",
    "used_units",
    "wait",
]
