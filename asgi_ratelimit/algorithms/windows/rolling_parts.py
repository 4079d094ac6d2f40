"""The parts of a rolling window: where there is room, and how the room to come pays back a debit.

Parts are pairs ``(part, count)`` in order, and no count is 0.
No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import TypeAlias

from ...quotas import RollingWindow
from .exact_units import snapped

Part: TypeAlias = tuple[float, float]
Parts: TypeAlias = tuple[Part, ...]

PAYMENTS, PARTS_OF_PAYMENTS = 32, 768
"""How many parts among the bookings ahead may pay back a debit, and how many parts all payments may search."""


def first_fit(quota: RollingWindow, parts: Parts, first: float, units: float) -> float:
    """The first part from ``first`` on in which ``units`` conform: no window with that part gets more than the limit.

    Of the parts up to a given one, the fewest that leave no room for the units rule out every part that shares a window
    with all of them.
    """
    most, buckets = snapped(quota, snapped(quota, quota.limit) - units), quota.buckets
    if not parts or parts[-1][0] <= first:
        return _fit_at_end(quota, parts, first, most)
    total, oldest, fit = 0.0, 0, first
    for number, (part, count) in enumerate(parts):
        total = snapped(quota, total + count)
        if total <= most:
            continue
        without = snapped(quota, total - parts[oldest][1])
        while oldest < number and without > most:
            total, oldest = without, oldest + 1
            without = snapped(quota, total - parts[oldest][1])
        if fit < part - buckets:
            break
        if part <= parts[oldest][0] + buckets:
            fit = max(fit, parts[oldest][0] + buckets + 1.0)
    return fit


def _fit_at_end(quota: RollingWindow, parts: Parts, first: float, most: float) -> float:
    """``first_fit`` if no part lies ahead, and ``most`` units may count beside those that are to fit."""
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
    """The units of the fullest window that contains the part ``at``."""
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
    """The parts after paying back a debit from ``at`` to ``stop``, the debit that is left, and the last part that pays.

    Each part pays as much as it has room for. After ``PAYMENTS`` payments among the bookings ahead, or fewer if there
    are many parts, the rest is paid behind them.
    """
    limit, least, payments = snapped(quota, quota.limit), snapped(quota, 1e-6), 0
    most = min(PARTS_OF_PAYMENTS // max(len(parts), 1), PAYMENTS)
    while at <= stop and units > 0.0:
        ahead = bisect_left(parts, (at + 1.0,))
        if ahead == len(parts):
            return _paid_in_turn(quota, parts, units, at, stop)
        alone_until = parts[ahead][0] - quota.buckets - 1.0
        if payments >= most:
            at = parts[-1][0]
        elif at <= alone_until:
            before, units, at = _paid_in_turn(quota, parts[:ahead], units, at, min(alone_until, stop))
            parts = (*before, *parts[ahead:])
            if units > 0.0:
                at, payments = alone_until + 1.0, payments + 1
        else:
            at = first_fit(quota, parts[bisect_left(parts, (at - quota.buckets,)) :], at, least)
            fit = min(snapped(quota, max(limit - highest(quota, parts, at), 0.0)), units)
            if at <= stop and fit > 0.0:
                parts, units = with_units(quota, parts, at, fit), snapped(quota, max(units - fit, 0.0))
            payments += 1
    return parts, units, at


def _paid_in_turn(
    quota: RollingWindow, parts: Parts, units: float, at: float, stop: float
) -> tuple[Parts, float, float]:
    """``paid`` if nothing lies ahead of ``at``: each part that leaves the window makes room for the debit.

    What a full window pays, it pays again one window later, once for each full limit of the debit.
    """
    limit, length, after = snapped(quota, quota.limit), quota.buckets + 1.0, list(parts)
    number = bisect_left(parts, (at - quota.buckets,))
    total = 0.0
    for _, count in after[number:]:
        total = snapped(quota, total + count)
    while True:
        fit = min(snapped(quota, max(limit - total, 0.0)), units)
        if fit > 0.0:
            total, units = snapped(quota, total + fit), snapped(quota, max(units - fit, 0.0))
            _add_units(quota, after, at, fit)
        windows = float(math.ceil(units / limit)) - 1.0 if total == limit else 0.0
        if at + windows * length > stop:
            windows = float(math.floor((stop - at) / length))
        if windows > 0.0:
            after, number = [(part + windows * length, count) for part, count in after[number:]], 0
            at, units = at + windows * length, snapped(quota, max(units - windows * limit, 0.0))
        if units <= 0.0 or number == len(after) or after[number][0] + length > stop:
            return tuple(after[number:]), units, at
        at, total = after[number][0] + length, snapped(quota, max(total - after[number][1], 0.0))
        number += 1
        if number == len(after):
            total = 0.0


def _add_units(quota: RollingWindow, parts: list[Part], at: float, units: float) -> None:
    """Add units to the last part, or add a part behind it."""
    if parts and parts[-1][0] == at:
        parts[-1] = (at, snapped(quota, parts[-1][1] + units))
    else:
        parts.append((at, units))
