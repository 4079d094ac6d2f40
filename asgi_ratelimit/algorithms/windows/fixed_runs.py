"""Runs of fixed windows, and how a debit fills them.

Runs ``(start, stop, count)`` are in order: each window from ``start`` to before ``stop`` has ``count`` units.
No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TypeAlias

from ...quotas import FixedWindow
from ..state import MAX_PIECES
from .exact_units import snapped

Run: TypeAlias = tuple[float, float, float]


def count_at(runs: Sequence[Run], at: float) -> float:
    """The units of the window ``at``."""
    for start, stop, count in runs:
        if start <= at < stop:
            return count
    return 0.0


def with_count(runs: tuple[Run, ...], at: float, count: float, first: float) -> tuple[Run, ...]:
    """The runs with ``count`` units in the window ``at``, and without what lies before the window ``first``."""
    return bounded(replaced(runs, at, count, first))


def replaced(runs: tuple[Run, ...], at: float, count: float, first: float) -> list[Run]:
    """``with_count``, without a bound on the number of runs."""
    after: list[Run] = []
    for start, stop, other in runs:
        add_run(after, max(start, first), min(stop, at), other)
    add_run(after, at, at + 1.0, count)
    for start, stop, other in runs:
        add_run(after, max(start, at + 1.0), stop, other)
    return after


def add_run(runs: list[Run], start: float, stop: float, count: float) -> None:
    """Add a run behind the others; it joins the last one if that one ends where it starts and has the same count."""
    if start >= stop or count <= 0.0:
        return
    if runs and runs[-1][1] == start and runs[-1][2] == count:
        runs[-1] = (runs[-1][0], stop, count)
    else:
        runs.append((start, stop, count))


def bounded(runs: list[Run]) -> tuple[Run, ...]:
    """At most ``MAX_PIECES`` of these runs: while there are more, the two neighbours that lose least are joined."""
    while len(runs) > MAX_PIECES:
        losses = [_joined(*pair)[1] for pair in pairwise(runs)]
        least = losses.index(min(losses))
        runs[least : least + 2] = [_joined(*runs[least : least + 2])[0]]
    return tuple(runs)


def _joined(one: Run, other: Run) -> tuple[Run, float]:
    """One run that replaces two neighbours, and how many more units it has than both."""
    start, stop, count = one[0], other[1], max(one[2], other[2])
    lost = count * (stop - start) - one[2] * (one[1] - one[0]) - other[2] * (other[1] - other[0])
    return (start, stop, count), lost


def filled(quota: FixedWindow, runs: tuple[Run, ...], units: float, at: float, stop: float) -> tuple[list[Run], float]:
    """The windows from ``at`` to before ``stop``, filled up with ``units`` as far as they go, and the units left."""
    after: list[Run] = []
    for start, end, count in runs:
        if start >= stop:
            break
        if end > at:
            units = _fill(quota, after, (at, start, 0.0), units)
            units = _fill(quota, after, (max(start, at), min(end, stop), count), units)
            at = end
    return after, _fill(quota, after, (at, stop, 0.0), units)


def _fill(quota: FixedWindow, runs: list[Run], run: Run, units: float) -> float:
    """Add a run, filled up with ``units``, and return the units that are left."""
    start, stop, count = run
    limit = snapped(quota, quota.limit)
    free = max(limit - count, 0.0)
    if start >= stop or units <= 0.0 or free == 0.0:
        add_run(runs, start, stop, count)
        return units
    full = min(float(math.floor(units / free)), stop - start)
    add_run(runs, start, start + full, limit)
    rest = snapped(quota, max(units - full * free, 0.0))
    if start + full == stop:
        return rest
    add_run(runs, start + full, start + full + 1.0, snapped(quota, count + rest))
    add_run(runs, start + full + 1.0, stop, count)
    return 0.0
