"""The lows of a token bucket: how much of a charge whose time has come can be given back.

Without the last r units of a charge, the level now would be lower by ``min(r, lowest level since the charge)``: if the
bucket ran empty in between, all its units are available again, and there is nothing to give back. The record of a state
is ``()``, or

* its busy period ``(start, units, sunk)``: the time since which the bucket has not been empty; the scaled units that
  were charged since then and not given back (with none, the bucket is as if never used); and by how much its level has
  sunk because units were given back, which tells the places of slots in the future;
* up to ``MAX_LOWS`` lows ``(time, low)``: how much of a charge at this time can be given back, both increasing. That is
  the lowest level since then, just before a later charge. A charge between two of these times can give back at least as
  much as the low before it says, and the newest charge up to the level.

A bucket of ``10/s burst 10`` drains by one unit in 100 ms. Levels and lows are in units here, and times in ms:

====  ===========================  ===========  ===========  ==================
time  what happens                 level        busy period  lows
====  ===========================  ===========  ===========  ==================
   0  4 are charged                4, before 0
 200  3 are charged                5, before 2  (0, 7, 0)    (0, 2)
 300  1 is charged                 5, before 4  (0, 8, 0)    (0, 2), (200, 4)
 300  2 of the 3 are given back    3            (0, 6, 2)    (0, 2), (200, 2)
 300  all of the 4 are given back  1            (0, 2, 4)    (200, 0)
====  ===========================  ===========  ===========  ==================

Of the 4, only 2 come back, the low of time 0: the other two had drained by 200. With 1 unit charged at 200 and 1 at 300
alone, the level would also be 1.

A take that may be settled is recorded, and so is a settlement. From then on, charges are recorded until the bucket is
empty. A charge that is not recorded keeps as much as may have drained until the newest charge.

With a factor below 1 the level must stay on its side of the burst floor, so that it drains as before: above the floor,
a low is counted from the floor.
No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import math

from ...quotas import TokenBucket
from ..state import NEVER, BusyPeriod, Low, Lows, Record, State

NO_LOW: Low = (-math.inf, 0.0)
"""Stands for the newest low where there is none."""


def busy_period(state: State) -> BusyPeriod:
    """The busy period of a state; if there is no record, as if the bucket had begun at its last change."""
    level, last, _, _, record, _ = state
    return record[0] if record else (last, level, 0.0)


def lows_of(record: Record) -> Lows:
    """The lows of a record."""
    return record[1:]


def with_newest(state: State) -> Lows:
    """The lows of a state, with one for the newest charge."""
    level, last, _, _, record, _ = state
    lows = record[1:]
    newest, _ = lows[-1] if lows else NO_LOW
    return lows if newest >= last else (*lows, (last, level))


def latest_slot(quota: TokenBucket, lows: Lows, since: float, left: float) -> float:
    """The latest time that may have a booking in a queue of the length ``left``; 0 if there are no lows.

    It is no later than the newest low, and lies in the queue. Lows of cancelled slots may lie beyond the queue.
    """
    if not lows:
        return 0.0
    newest, _ = lows[-1]
    return min(newest, since + left / quota.limit // 1.0)


def lows_before(lows: Lows, end: float) -> Lows:
    """The lows of the times before ``end``."""
    return tuple([low for low in lows if low[0] < end])


def lowered(lows: Lows, most: float = NEVER) -> Lows:
    """The lows, none of them above ``most``; those that add nothing are dropped."""
    after: list[Low] = []
    highest = 0.0
    for time, before in lows:
        low = min(before, most)
        if low > highest:
            after.append((time, low))
            highest = low
    return tuple(after)
