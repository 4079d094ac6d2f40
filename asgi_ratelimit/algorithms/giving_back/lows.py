"""The lows of a token bucket: how much of a charge whose time has come can be given back.

Without the last r units of a charge, the level now would be lower by ``min(r, lowest level since the charge)``: if the
bucket ran empty in between, all its units are available again, and there is nothing to give back. The lows of a state
are

* ``(time, units, sunk)``: the time since which the bucket has not been empty; the scaled units that were charged since
  then and not given back (with none, the bucket is as if never used); and by how much its level has sunk, which tells
  the places of slots in the future;
* up to ``MAX_LOWS`` pairs ``(time, low)``: how much of a charge at this time can be given back, both increasing. That
  is the lowest level since then, just before a later charge. A charge between two pairs can give back at least as much
  as the pair before it says, and the newest charge up to the level.

A take that may be settled records them, and so does a settlement. From then on they are recorded until the bucket is
empty. A charge that is not recorded keeps as much as may have drained until the newest charge.

With a factor below 1 the level must stay on its side of the burst floor, so that it drains as before: above the floor,
a low is counted from the floor.
No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import math

from ...quotas import TokenBucket
from ..state import MAX_LOWS, NEVER, Lows, Pairs, State
from ..token_bucket_level import drained


def sunk(state: State) -> float:
    """By how much the level has sunk since the bucket was empty."""
    return state[4][0][2] if state[4] else 0.0


def lows_after(
    quota: TokenBucket, state: State, since: float, slot: float, lefts: tuple[float, float], scaled: float
) -> Lows:
    """The lows after a charge is booked at ``since`` for ``slot``; ``lefts`` are the levels just before it then.

    The charge counts as one at the latest slot of the queue, even if it may go earlier.
    """
    level, last, _, _, lows, _ = state
    left_now, left = lefts
    if left_now <= 0.0:
        return ((since, scaled, 0.0), (slot, scaled)) if slot > since or scaled > quota.burst_level else ()
    pairs = _with_newest(state)
    latest = max(slot, latest_slot(quota, pairs, since, left_now))
    if since <= last and latest <= since:  # with the charges of the same microsecond
        return ((lows[0][0], lows[0][1] + scaled, lows[0][2]), *lows[1:]) if lows else ()
    start, units, sunk = lows[0] if lows else (last, level, 0.0)
    if not lows and level > quota.burst_level:  # what was booked ahead was not recorded
        start, pairs = since, ()
    pairs = lowered(pairs, _low_at(quota, level, drained(quota, left, latest - slot)))
    newest = (latest, drained(quota, left + scaled, latest - slot))
    return ((start, units + scaled, sunk), *_thinned(_ended(pairs, newest, since), since))


def is_hidden(quota: TokenBucket, since: float, slot: float, left: float, scaled: float) -> bool:
    """Whether a charge goes later than this bucket requires, so that only the lows show that its slot lies ahead."""
    return slot > since and left + scaled + quota.limit <= quota.burst_level


def lows_in_gap(
    quota: TokenBucket, state: State, since: float, slot: float, lefts: tuple[float, float], scaled: float
) -> Lows:
    """The lows after a charge is booked in a gap; ``lefts`` are the level at ``since``, and the level below its slot.

    A charge before that slot can give back no more than lies below the booked charge then; otherwise the booked charge
    would come before its slot.
    """
    level, last, _, _, lows, _ = state
    left_now, below = lefts
    if not lows and level > quota.burst_level:  # what was booked ahead was not recorded
        return ((float(math.ceil(last + level / quota.limit)), level + scaled, 0.0),)
    start, units, sunk = lows[0] if lows else (last, level, 0.0)
    pairs = _with_newest(state)
    latest = max(slot, latest_slot(quota, pairs, since, left_now))
    pairs = lowered(pairs, _low_at(quota, level, left_now))
    before = tuple([pair for pair in pairs if pair[0] < slot])
    pairs = (*lowered(before, below), *pairs[len(before) :])
    newest = (latest, drained(quota, left_now, latest - since))
    return ((start, units + scaled, sunk), *_thinned(_ended(pairs, newest, since), since))


def latest_slot(quota: TokenBucket, pairs: Pairs, since: float, left: float) -> float:
    """The latest time that may have a booking in a queue of the length ``left``; 0 if there are no pairs.

    It is no later than the newest pair, and lies in the queue. Pairs of cancelled slots may lie beyond the queue.
    """
    return min(pairs[-1][0], since + left / quota.limit // 1.0) if pairs else 0.0


def _ended(pairs: Pairs, newest: tuple[float, float], since: float) -> Pairs:
    """The pairs before the latest slot, and a pair for that slot if it lies ahead: nothing is booked for later."""
    earlier = tuple([pair for pair in pairs if pair[0] < newest[0]])
    return (*earlier, newest) if newest[0] > since else earlier


def without_slot(quota: TokenBucket, state: State, slot: float, level: float, rest: float) -> Pairs:
    """The pairs after the charge at the latest slot was given back, and the queue ends at ``level``.

    If some of the charge is left, ``rest`` is the level then. Other charges may be booked for times up to its slot, and
    for later times too if its slot is in a gap, or the factor is below 1.
    """
    last, lows = state[1], state[4]
    if len(lows) > 1 and (slot % 1.0 or quota.slow_rate != quota.limit) and lows[-1][0] > slot:
        return _capped(quota, lows[1:], slot, level, last)
    earlier = tuple([pair for pair in lows[1:] if pair[0] < slot])
    if not lows or (rest > 0.0 and earlier and earlier[-1][0] >= math.floor(slot)):
        return earlier
    if rest > 0.0:
        return (*earlier, (float(math.floor(slot)), rest))
    latest = max(min(float(math.floor(slot)), last + level / quota.limit // 1.0), last)
    if earlier and earlier[-1][0] >= latest:
        return earlier
    return (*earlier, (latest, drained(quota, level, latest - last)))


def _capped(quota: TokenBucket, pairs: Pairs, slot: float, level: float, last: float) -> Pairs:
    """The pairs, with those from ``slot`` on no higher than a queue that ends at ``level``; the newest pair stays."""
    after: list[tuple[float, float]] = []
    most = NEVER
    for time, low in reversed(pairs):
        most = min(most, low, drained(quota, level, time - last) if time >= slot else low)
        after.append((time, most))
    return (*lowered(tuple(after[:0:-1]), NEVER), *after[:1])


def first_lows(last: float, level: float, back: float) -> Lows:
    """The lows after the first settlement of a bucket without a record: its level has sunk by ``back``."""
    return ((last, level, back),) if level > 0.0 else ()


def lows_after_debit(quota: TokenBucket, state: State, since: float, left: float, scaled: float) -> Lows:
    """The lows after a debit at ``since``, before which the level was ``left``: above the burst, they are recorded.

    If bookings ahead were not recorded, a slot may lie anywhere in the queue: the debit counts as one at its end.
    """
    is_unknown, level = not state[4] and state[0] > quota.burst_level, left + scaled
    slot = since + left / quota.limit // 1.0 if is_unknown else since
    lows = lows_after(quota, state, since, slot, (left, drained(quota, left, slot - since)), scaled)
    if not lows and left <= quota.burst_level < level:
        return ((since, level, 0.0), (since, level))
    return lows


def _low_at(quota: TokenBucket, level: float, left: float) -> float:
    """By how much a level that has drained to ``left`` could have been lower and still have drained the same way."""
    if quota.slow_rate == quota.limit or level <= quota.burst_floor:
        return left
    return left - quota.burst_floor


def _with_newest(state: State) -> Pairs:
    """The pairs, with one for the newest charge."""
    pairs = state[4][1:]
    return pairs if pairs and pairs[-1][0] >= state[1] else (*pairs, (state[1], state[0]))


def lowered(pairs: Pairs, most: float) -> Pairs:
    """The pairs, none of them above ``most``; pairs that add nothing are dropped."""
    after: list[tuple[float, float]] = []
    highest = 0.0
    for time, low in pairs:
        low = min(low, most)  # noqa: PLW2901
        if low > highest:
            after.append((time, low))
            highest = low
    return tuple(after)


def _thinned(pairs: Pairs, now: float) -> Pairs:
    """At most ``MAX_LOWS`` pairs: the pairs whose removal loses the least level for the least time go first.

    The newest pair never goes if its time is still to come. Of the rules that were tried in simulations, this one lost
    least.
    """
    while len(pairs) > MAX_LOWS:
        least, least_loss, before = 0, NEVER, 0.0
        for number, (time, low) in enumerate(pairs):
            after = pairs[number + 1][0] if number + 1 < len(pairs) else now
            loss = (low - before) * (after - time)
            if after >= time and loss < least_loss:
                least, least_loss = number, loss
            before = low
        pairs = (*pairs[:least], *pairs[least + 1 :])
    return pairs


def low_since(quota: TokenBucket, state: State, slot: float, piece: tuple[float, float], end: float) -> float:
    """How much of a charge at ``slot`` can be given back; ``end`` is the level where it ends in the queue.

    A piece is the level below the charge at its slot, if it is in a gap, and its scaled cost. In a gap, the charge did
    not raise the level, which was already as high as its end.
    """
    _, last, _, _, lows, _ = state
    below, scaled = piece
    if not lows:
        return _low_unrecorded(quota, state, slot, scaled, end)
    if slot < lows[0][0]:  # not recorded yet
        time, first = _with_newest(state)[0]
        left = scaled - (max(lows[0][0], time) - slot) * quota.limit if quota.slow_rate == quota.limit else 0.0
        return max(min(left, first), 0.0)
    low = 0.0
    for time, next_low in _with_newest(state):
        if time == slot:
            return next_low
        if time > slot:
            if quota.slow_rate != quota.limit:
                return low
            return max(low, min(next_low, min(low, below) + scaled - (time - slot) * quota.limit))
        low = next_low
    return low if len(lows) > 1 and lows[-1][0] >= last else 0.0


def _low_unrecorded(quota: TokenBucket, state: State, slot: float, scaled: float, end: float) -> float:
    """``low_since`` if nothing is recorded, not even what may have been booked ahead since.

    Without such bookings, an older charge has drained by no more than the time between it and the newest one.
    """
    level: float = state[0]
    last = state[1]
    if slot > last:
        return level if level == end else 0.0
    if level > quota.burst_level:
        return 0.0
    if slot == last:
        return level
    left = scaled - (last - slot) * quota.limit if quota.slow_rate == quota.limit else 0.0
    return max(min(left, level), 0.0)


def lows_given_back(pairs: Pairs, slot: float, low: float, back: float) -> Pairs:
    """The pairs after a charge at ``slot``, which could give back ``low``, has given back ``back``."""
    after: list[tuple[float, float]] = []
    most = NEVER
    for time, before in reversed(pairs):
        most = min(most, before - back if time >= slot else low - back, before)
        after.append((time, most))
    newest = [(time, max(most, 0.0)) for time, most in after[:1]]
    return (*lowered(tuple(after[:0:-1]), NEVER), *newest)
