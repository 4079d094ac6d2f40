"""The arithmetic of admission: pure functions of a quota, a state, the time and a cost.

One module for each kind of quota, all with the same functions; ``takes`` for what a request asks of several, and
``settlements`` for what becomes of it.
No ``await``, no clock, no lock, no logging in this package. ``stores/rate_limit.lua`` has the same functions under the
same names in the same order, with the same operations on doubles, so that both give answers equal to the bit.

Times are whole microseconds as floats. A state is a tuple ``(core, last, era, holes, ids)``, and ``None`` stands for
a bucket that was never used:

* ``core``: what was used, in the terms of the kind of quota;
* ``last``: when the state was last changed; ``era``: a number drawn from the time when it was first made, so that
  what was booked before a reset is not given back after it;
* ``holes``: what was booked and given back ahead of the end of the queue, at most ``MAX_HOLES`` pairs in order;
* ``ids``: the last few settlements, so that none is carried out twice.
"""

from .kinds import known, reset_us, share, used, waiting
from .settle import settle, settlement_of
from .state import MAX_HOLES, NEVER_US, State
from .take import decide, decide_simple, foresee

__all__ = [
    "MAX_HOLES",
    "NEVER_US",
    "State",
    "decide",
    "decide_simple",
    "foresee",
    "known",
    "reset_us",
    "settle",
    "settlement_of",
    "share",
    "used",
    "waiting",
]
