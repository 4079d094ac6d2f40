"""The gaps in the queue of a token bucket: units with a slot in the future that were given back, and who takes them.

A gap is ``(start, size)`` in levels as of ``last``, and gaps are in order. No ``await``, no clock, no lock, no logging
in this module.
"""

from __future__ import annotations

import math
from bisect import bisect_right

from ...quotas import TokenBucket
from ..state import MAX_PIECES, NEVER, NEVER_US, Gap, Gaps, State
from ..token_bucket_level import drained


def units_in_gaps(quota: TokenBucket, gaps: Gaps, elapsed: float) -> list[float]:
    """The whole units that fit into each gap now, by the rules of ``take``, for the gaps that have room for any."""
    passed, in_each = elapsed * quota.limit, []
    for start, size in gaps if elapsed >= 0.0 else ():
        at, free = (start - passed, size) if start >= passed else (0.0, size + (start - passed))
        if quota.burst_level - at < quota.period_us:
            break  # gaps are in order
        units = min(free, quota.burst_level - at) / quota.period_us // 1.0
        if units > 0.0:
            in_each.append(units if _fits(quota, (start, size), elapsed, units * quota.period_us) else units - 1.0)
    return in_each


def earliest_gap(
    quota: TokenBucket, gaps: Gaps, elapsed: float, scaled: float, end_wait_us: float, min_wait_us: float
) -> float:
    """The least wait at which a ``scaled`` cost conforms in a gap, if that is earlier than the end of the queue.

    Gaps are in order, so the first gap that fits is also the earliest.
    """
    earliest = max(elapsed + min_wait_us, 0.0)
    are_over = bisect_right(gaps, earliest * quota.limit, key=_end)
    for gap in gaps[are_over:] if scaled <= quota.burst_level else ():
        if scaled <= gap[1]:
            wait_us = _wait(quota, gap, earliest, scaled) - elapsed
            if wait_us < NEVER:
                return min(wait_us, end_wait_us)
    return end_wait_us


def _end(gap: Gap) -> float:
    return gap[0] + gap[1]


def _wait(quota: TokenBucket, gap: Gap, earliest: float, scaled: float) -> float:
    """The least time since ``last``, from ``earliest`` on, at which a ``scaled`` cost conforms inside a gap."""
    elapsed = max(earliest, float(math.ceil((gap[0] + scaled - quota.burst_level) / quota.limit)))
    if elapsed >= NEVER_US:
        return NEVER
    if not _fits(quota, gap, elapsed, scaled):
        elapsed += 1.0  # the division may have rounded down
        if not _fits(quota, gap, elapsed, scaled):
            return NEVER
    while elapsed > earliest and _fits(quota, gap, elapsed - 1.0, scaled):
        elapsed -= 1.0
    return elapsed


def _fits(quota: TokenBucket, gap: Gap, elapsed: float, scaled: float) -> bool:
    """Whether a ``scaled`` cost conforms inside a gap, ``elapsed`` microseconds after ``last``."""
    start, size = gap_at(quota, gap, elapsed)
    return elapsed >= 0.0 and scaled <= size and start + scaled <= quota.burst_level


def gap_at(quota: TokenBucket, gap: Gap, elapsed: float) -> Gap:
    """A gap after ``elapsed`` microseconds, at the full rate. What has run off is gone."""
    start, size = gap
    start -= max(elapsed, 0.0) * quota.limit
    return (start, size) if start >= 0.0 else (0.0, size + start)


def gaps_after(quota: TokenBucket, gaps: Gaps, elapsed: float) -> Gaps:
    """The gaps after ``elapsed`` microseconds."""
    passed = max(elapsed, 0.0) * quota.limit
    begun = [(0.0, size + (start - passed)) for start, size in gaps if start < passed]
    ahead = [(start - passed, size) for start, size in gaps if start >= passed]
    return tuple([gap for gap in begun if gap[1] > 0.0] + ahead)


def place_in_gap(
    quota: TokenBucket, state: State, now: float, scaled: float, wait_us: float
) -> tuple[int, float] | None:
    """The first gap that a ``scaled`` cost fits into at its slot, and the level below the cost, as of the booking.

    ``None`` if it fits into no gap.
    """
    last, gaps, slot = state[1], state[3], now + wait_us
    elapsed = slot - last
    passed = elapsed * quota.limit
    for number in range(bisect_right(gaps, passed, key=_end) if elapsed >= 0.0 else len(gaps), len(gaps)):
        start, size = gap_at(quota, gaps[number], elapsed)
        if start + scaled > quota.burst_level:
            break  # gaps are in order
        if scaled <= size:
            return number, start + (slot - max(now, last)) * quota.limit
    return None


def gaps_without(quota: TokenBucket, gaps: Gaps, elapsed: float, place: tuple[int, float], scaled: float) -> Gaps:
    """The gaps after ``elapsed`` microseconds, without a ``scaled`` piece at its place.

    The number of the gap identifies it: rounding may put the start of the piece just outside the gap.
    """
    taken, start = place
    at, size = gap_at(quota, gaps[taken], elapsed)
    bottom = max(start, at)
    pieces = [(at, bottom - at), (bottom + scaled, at + size - (bottom + scaled))]
    earlier, later = gaps_after(quota, gaps[:taken], elapsed), gaps_after(quota, gaps[taken + 1 :], elapsed)
    return (*earlier, *[piece for piece in pieces if piece[1] > 0.0], *later)[:MAX_PIECES]


def with_gap(gaps: Gaps, start: float, size: float) -> Gaps:
    """The gaps and one more, joined with those that it touches. With ``MAX_PIECES`` gaps, none is added."""
    end, apart = start + size, []
    for gap in gaps:
        if gap[0] + gap[1] < start or gap[0] > end:
            apart.append(gap)
        else:
            start, size = min(start, gap[0]), size + gap[1]
    return gaps if len(apart) >= MAX_PIECES else tuple(sorted([*apart, (start, size)]))


def is_served(quota: TokenBucket, gap: Gap, elapsed: float, back: float, level: float) -> bool:
    """Whether a gap that sinks by ``back`` makes nobody wait longer, because the queue then ends at ``level``.

    The gap then runs off earlier. A charge that it would still have had room for must find room at the end of the queue
    by then.
    """
    start, size = gap_at(quota, gap, elapsed)
    most = min(size, quota.burst_level)
    later = max(start + size - back - most, 0.0) / quota.limit
    return most <= 0.0 or drained(quota, level, max(elapsed, 0.0) + later) <= quota.burst_level - most


def opens_no_later(quota: TokenBucket, gap: Gap, elapsed: float, level: float) -> bool:
    """Whether a charge that fits into a gap finds room as early if the gap is cut off and the queue ends at ``level``.

    A gap runs off at the full rate, and with a factor below 1 the end of the queue may not.
    """
    if quota.slow_rate == quota.limit:
        return True
    start, size = gap_at(quota, gap, elapsed)
    most = min(size, quota.burst_level)
    opens = max(start + most - quota.burst_level, 0.0) / quota.limit
    return most <= 0.0 or drained(quota, level, max(elapsed, 0.0) + opens) <= quota.burst_level - most
