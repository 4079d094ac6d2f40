"""The arithmetic of admission: pure functions of a quota, a state, the time and a cost.

Each kind of quota has a module, and all of these modules have the same functions. ``take`` decides a request over all
its buckets; ``settle`` corrects what a request was charged.
No ``await``, no clock, no lock, no logging in this package. ``stores/redis/rate_limit.lua`` has the same functions
under the same names in the same order, with the same operations on doubles, so that both give bit-identical answers.

Times are whole microseconds as floats. A state is a tuple ``(core, last, generation, gaps, record, older)``, and
``None`` stands for a bucket that was never used:

* ``core``: what was used, in the form that the kind of quota counts it;
* ``last``: when the state last changed;
* ``generation``: the number that the state got when it was first made; no two lives of a bucket share one, so nothing
  is given back to a bucket that was reset since;
* ``gaps``: slots in the future that were given back, as at most ``MAX_PIECES`` pairs in order;
* ``record``: what a token bucket records of its charges, so that they can be given back: its busy period, and at most
  ``MAX_LOWS`` lows in order;
* ``older``: the value of another version of the quota, with another limit, which other processes may still use.
"""

from .charge_outcomes import decision_of, decision_of_booking, is_allowed, wait_of
from .packed_states import pack
from .quota_kinds import (
    ALGORITHMS,
    booked_ahead,
    current,
    is_queue,
    is_read_in_whole,
    reset_us,
    share,
    taken_now,
    unpack,
    used,
)
from .settle import debited, settle, settlement_of, where_debited
from .state import (
    BIRTH_BITS,
    GENERATIONS,
    MAX_LOWS,
    MAX_PIECES,
    NEVER_US,
    PLAIN_PARTS,
    Booking,
    Outcome,
    Outlook,
    PlainOutcome,
    State,
    Taken,
)
from .take import decide, foresee, undone
from .token_bucket_level import admit, available, book, refused, scaled_cost

__all__ = [
    "ALGORITHMS",
    "BIRTH_BITS",
    "GENERATIONS",
    "MAX_LOWS",
    "MAX_PIECES",
    "NEVER_US",
    "PLAIN_PARTS",
    "Booking",
    "Outcome",
    "Outlook",
    "PlainOutcome",
    "State",
    "Taken",
    "admit",
    "available",
    "book",
    "booked_ahead",
    "current",
    "debited",
    "decide",
    "decision_of",
    "decision_of_booking",
    "foresee",
    "is_allowed",
    "is_queue",
    "is_read_in_whole",
    "pack",
    "refused",
    "reset_us",
    "scaled_cost",
    "settle",
    "settlement_of",
    "share",
    "taken_now",
    "undone",
    "unpack",
    "used",
    "wait_of",
    "where_debited",
]
