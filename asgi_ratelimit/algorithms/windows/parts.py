"""The parts of a rolling window: where there is room, and how the room to come pays back a debit.

Parts are pairs ``(part, count)`` in order, none of 0.
No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import TypeAlias

from ...quotas import RollingWindow
from ..state import snapped

Part: TypeAlias = tuple[float, float]
Parts: TypeAlias = tuple[Part, ...]


def first_fit(quota: RollingWindow, parts: Parts, first: float, units: float) -> float:
    """The first part from ``first`` on in which ``units`` conform: no window that has it gets more than the limit.

    Of all the parts up to one, the fewest that leave no room for the units bar whatever is in one window with them.
    """
    most, buckets = snapped(quota, snapped(quota, quota.limit) - units), quota.buckets
    if not parts or parts[-1][0] <= first:
        return _fit_at_end(quota, parts, first, most)
    total, oldest, found = 0.0, 0, first
    for number, (part, count) in enumerate(parts):
        total = snapped(quota, total + count)
        if total <= most:
            continue
        without = snapped(quota, total - parts[oldest][1])
        while oldest < number and without > most:
            total, oldest = without, oldest + 1
            without = snapped(quota, total - parts[oldest][1])
        if found < part - buckets:
            break
        if part <= parts[oldest][0] + buckets:
            found = max(found, parts[oldest][0] + buckets + 1.0)
    return found


def _fit_at_end(quota: RollingWindow, parts: Parts, first: float, most: float) -> float:
    """``first_fit`` where no part lies ahead, and ``most`` units may count beside those that are to fit."""
    total, oldest = 0.0, first - quota.buckets
    for part, count in reversed(parts):
        if part < oldest:
            break
        total += count
        if total % 1.0 != 0.0:
            total = snapped(quota, total)
        if total > most:
            return part + quota.buckets + 1.0
    return first


def highest(quota: RollingWindow, parts: Parts, at: float) -> float:
    """The units of the fullest window that has the part ``at``."""
    oldest = bisect_left(parts, (at - quota.buckets,))
    total, most, latest = 0.0, 0.0, at + quota.buckets
    for part, count in parts[oldest:]:
        if part > at:
            if part > latest:
                break
            while parts[oldest][0] < part - quota.buckets:
                total, oldest = snapped(quota, total - parts[oldest][1]), oldest + 1
        total += count
        if total % 1.0 != 0.0:
            total = snapped(quota, total)
        if total > most:
            most = total
    return most


def with_units(quota: RollingWindow, parts: Parts, at: float, units: float) -> Parts:
    """The parts with ``units`` more in the part ``at``."""
    if not parts or parts[-1][0] < at:
        return (*parts, (at, units))
    if parts[-1][0] == at:
        return (*parts[:-1], (at, snapped(quota, parts[-1][1] + units)))
    number = bisect_left(parts, (at,))
    if parts[number][0] == at:
        return (*parts[:number], (at, snapped(quota, parts[number][1] + units)), *parts[number + 1 :])
    return (*parts[:number], (at, units), *parts[number:])


def paid(quota: RollingWindow, parts: Parts, units: float, at: float, stop: float) -> tuple[Parts, float, float]:
    """The parts with what is paid back of a debit from ``at`` to ``stop``, what is left, and the last part of all.

    As many units as fit are paid in the first part. Of the rest, each full limit waits for a window of its own, and
    what is left then for the first part that has room for it.
    """
    if at > stop:
        return parts, units, at
    limit = snapped(quota, quota.limit)
    fit = min(snapped(quota, max(limit - highest(quota, parts, at), 0.0)), units)
    if fit > 0.0:
        parts, units = with_units(quota, parts, at, fit), snapped(quota, max(units - fit, 0.0))
    windows = float(math.ceil(units / limit)) - 1.0
    if windows > 0.0:
        number, latest = _windows_paid(quota, parts, windows, at, stop)
        if number > 0.0:
            parts, at = with_units(quota, parts, latest, limit), latest
            units = snapped(quota, max(units - number * limit, 0.0))
        if number < windows:
            return parts, units, at
    if units > 0.0:
        rest = min(units, limit)
        at = first_fit(quota, parts, at, rest)
        if at <= stop:
            parts, units = with_units(quota, parts, at, rest), 0.0
    return parts, units, at


def _windows_paid(quota: RollingWindow, parts: Parts, windows: float, at: float, stop: float) -> tuple[float, float]:
    """How many of so many empty windows begin from ``at`` to ``stop``, and the part in which the last of them does."""
    length, number, latest = quota.buckets + 1.0, 0.0, at
    for position, (part, _) in enumerate(parts, 1):
        start, here = max(part + length, at), windows - number
        if start > stop:
            break
        if position < len(parts):
            here = min(float(math.floor((parts[position][0] - start) / length)), here)
        if here <= 0.0:
            continue
        due = here
        if start + (here - 1.0) * length > stop:
            due = float(math.floor((stop - start) / length)) + 1.0
        if due > 0.0:
            number, latest = number + due, start + (due - 1.0) * length
        if due < here or number == windows:
            break
    return number, latest
