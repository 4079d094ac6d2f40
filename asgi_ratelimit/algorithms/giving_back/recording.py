"""What a token bucket records of a charge or a debit, so that units can be given back later.

``lows.py`` says what a record is. No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import math
from itertools import pairwise

from ...quotas import TokenBucket
from ..state import MAX_LOWS, NEVER, Low, Lows, Record, State
from ..token_bucket_level import drained
from .lows import busy_period, latest_slot, lowered, lows_before, lows_of, with_newest


def record_after(
    quota: TokenBucket, state: State, since: float, slot: float, lefts: tuple[float, float], scaled: float
) -> Record:
    """The record after a charge is booked at ``since`` for ``slot``; ``lefts`` are the levels just before it then.

    The charge counts as one at the latest slot of the queue, even if it may go earlier.
    """
    level, last, _, _, record, _ = state
    left_now, left = lefts
    if left_now <= 0.0:
        return ((since, scaled, 0.0), (slot, scaled)) if slot > since or scaled > quota.burst_level else ()
    start, units, sunk = busy_period(state)
    lows = with_newest(state)
    latest = max(slot, latest_slot(quota, lows, since, left_now))
    if since <= last and latest <= since:  # with the charges of the same microsecond
        return ((start, units + scaled, sunk), *lows_of(record)) if record else ()
    if not record and level > quota.burst_level:  # what was booked ahead was not recorded
        start, lows = since, ()
    lows = lowered(lows, _low_at(quota, level, drained(quota, left, latest - slot)))
    newest = (latest, drained(quota, left + scaled, latest - slot))
    return ((start, units + scaled, sunk), *_thinned(_ended(lows, newest, since), since))


def is_hidden(quota: TokenBucket, since: float, slot: float, left: float, scaled: float) -> bool:
    """Whether a charge goes later than this bucket requires, so that only the lows show that its slot lies ahead."""
    return slot > since and left + scaled + quota.limit <= quota.burst_level


def record_in_gap(
    quota: TokenBucket, state: State, since: float, slot: float, lefts: tuple[float, float], scaled: float
) -> Record:
    """The record after a charge is booked in a gap; ``lefts`` are the level at ``since``, and that below its slot.

    A charge before that slot can give back no more than lies below the booked charge then; otherwise the booked charge
    would come before its slot.
    """
    level, last, _, _, record, _ = state
    left_now, below = lefts
    if not record and level > quota.burst_level:  # what was booked ahead was not recorded
        return ((float(math.ceil(last + level / quota.limit)), level + scaled, 0.0),)
    start, units, sunk = busy_period(state)
    lows = with_newest(state)
    latest = max(slot, latest_slot(quota, lows, since, left_now))
    lows = lowered(lows, _low_at(quota, level, left_now))
    earlier = lows_before(lows, slot)
    lows = (*lowered(earlier, below), *lows[len(earlier) :])
    newest = (latest, drained(quota, left_now, latest - since))
    return ((start, units + scaled, sunk), *_thinned(_ended(lows, newest, since), since))


def record_after_debit(quota: TokenBucket, state: State, since: float, left: float, scaled: float) -> Record:
    """The record after a debit at ``since``, before which the level was ``left``: above the burst, there is one.

    If bookings ahead were not recorded, a slot may lie anywhere in the queue: the debit counts as one at its end.
    """
    level_before, _, _, _, record, _ = state
    is_unknown, level = not record and level_before > quota.burst_level, left + scaled
    slot = since + left / quota.limit // 1.0 if is_unknown else since
    after = record_after(quota, state, since, slot, (left, drained(quota, left, slot - since)), scaled)
    if not after and left <= quota.burst_level < level:
        return ((since, level, 0.0), (since, level))
    return after


def _low_at(quota: TokenBucket, level: float, left: float) -> float:
    """By how much a level that has drained to ``left`` could have been lower and still have drained the same way."""
    if quota.slow_rate == quota.limit or level <= quota.burst_floor:
        return left
    return left - quota.burst_floor


def _ended(lows: Lows, newest: Low, since: float) -> Lows:
    """The lows before the latest slot, and the ``newest``, that of this slot, if it lies ahead.

    Nothing is booked for later.
    """
    latest, _ = newest
    earlier = lows_before(lows, latest)
    return (*earlier, newest) if latest > since else earlier


def _thinned(lows: Lows, now: float) -> Lows:
    """At most ``MAX_LOWS`` lows: those whose removal loses the least level for the least time go first.

    The newest low never goes if its time is still to come. Of the rules that were tried in simulations, this one lost
    least.
    """
    while len(lows) > MAX_LOWS:
        least, least_loss, before = 0, NEVER, 0.0
        for number, ((time, low), (after, _)) in enumerate(pairwise((*lows, (now, NEVER)))):
            loss = (low - before) * (after - time)
            if after >= time and loss < least_loss:
                least, least_loss = number, loss
            before = low
        lows = (*lows[:least], *lows[least + 1 :])
    return lows
