"""How windows count: in whole units, or in millionths of a unit if the limit is not too large for them.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import math

from ...decision import SettledCharge
from ...quotas import FixedWindow, RollingWindow

FINE = 2.0**30
"""Below a limit of this many units, windows count millionths of a unit; above it, whole ones."""


def snapped(quota: FixedWindow | RollingWindow, units: float) -> float:
    """``units`` as a window counts them: a whole number, or a multiple of a millionth, but not 0 unless they are 0.

    So sums are exact, and giving back leaves no remainder: ten costs of 0.1 are 1, and 0 again after all ten are given
    back.
    """
    if units % 1.0 == 0.0:
        return units
    if quota.limit < FINE:
        fine = units * 1e6 + 0.5  # rounded without a call, because windows do this for each of their parts
        fine = (fine - fine % 1.0) / 1e6
        return fine if fine > 1e-6 else 1e-6
    return float(math.ceil(units))


def count_left(quota: FixedWindow | RollingWindow, count: float, cost: float, actual: float) -> float:
    """The ``count`` of a window or part in which a ``cost`` came to only ``actual`` units."""
    left = count - (snapped(quota, cost) - snapped(quota, actual))
    return snapped(quota, left) if left > 0.0 else 0.0


def debit_beside(quota: FixedWindow | RollingWindow, debit: float, count: float, settled: SettledCharge) -> float:
    """The ``debit`` after a charge came to less by more than its window or part counts: the rest was in the debit."""
    if debit <= 0.0:
        return 0.0
    beyond = snapped(quota, settled.charge.cost) - snapped(quota, settled.actual) - count
    return snapped(quota, max(debit - beyond, 0.0)) if beyond > 0.0 else debit


def whole_units(quota: FixedWindow | RollingWindow, count: float) -> float:
    """The most whole units that fit into a window beside ``count``."""
    limit = snapped(quota, quota.limit)
    units = float(math.floor(limit - count + 0.5))
    while units > 0.0 and (units > quota.limit or snapped(quota, count + units) > limit):
        units -= 1.0
    return max(units, 0.0)
