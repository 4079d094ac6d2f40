"""The shape of a bucket's state, and the gaps in it that all algorithms share."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

Gap: TypeAlias = tuple[float, float]
Gaps: TypeAlias = tuple[Gap, ...]
Pairs: TypeAlias = tuple[tuple[float, float], ...]
Lows: TypeAlias = tuple[Any, ...]
State: TypeAlias = tuple[Any, float, int, Gaps, Lows, bytes]

Outlook: TypeAlias = tuple[float, float, float]
"""The whole units that can be taken now, and the microseconds until one more can be, and until all can be."""

Taken: TypeAlias = tuple["State | None", float, Outlook]
"""The new state (``None``: refused), the wait in microseconds, and the outlook from the state that results."""

Outcome: TypeAlias = tuple[Taken, State, float]
"""What came of one charge that does not wait: what was taken, the state before, and the time."""

NEVER_US = 2.0**52
"""A wait this long (142 years) or longer is never: beyond it, adding 1 microsecond to the time may change nothing."""

MAX_GAPS = 1000
"""The most gaps that a state holds."""

MAX_LOWS = 8
"""The most lows that a state holds."""

BIRTH_BITS = 48
"""Bits of a generation: a birth is a whole number from 0 to below 2 to this power."""

NEVER = math.inf


def units_in_gap(gaps: Gaps, index: float) -> float:
    """The units that were given back of window or part ``index``."""
    for at, units in gaps:
        if at == index:
            return units
    return 0.0


def with_gap_units(gaps: Gaps, index: float, units: float, first: float) -> Gaps:
    """The gaps with ``units`` more (or less) at ``index``; gaps before ``first`` are over and are dropped."""
    current = [(at, size + units if at == index else size) for at, size in gaps if at >= first]
    if all(at != index for at, _ in current) and len(current) < MAX_GAPS:
        current.append((index, units))
    return tuple(sorted((at, size) for at, size in current if size > 0.0))
