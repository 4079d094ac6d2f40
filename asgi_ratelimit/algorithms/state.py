"""The shape of a bucket's state, and what the algorithms have in common."""

from __future__ import annotations

from typing import Any, TypeAlias

Hole: TypeAlias = tuple[float, float]
Holes: TypeAlias = tuple[Hole, ...]
Ids: TypeAlias = tuple[float, ...]
State: TypeAlias = tuple[Any, float, float, Holes, Ids]

NEVER_US = 2.0**52
"""A wait this long (142 years) or longer is never: beyond it, adding 1 microsecond to the time may change nothing."""

MAX_HOLES = 64
"""How many pieces of a queue that were given back are remembered, so that a state stays small."""


def era_of(now: float) -> float:
    """The era of a state that is made now: the low 16 bits of the time, for want of chance."""
    return now % 65536.0


def units_in(holes: Holes, index: float) -> float:
    """The units of a window's hole: what was given back of window or part ``index``."""
    for at, units in holes:
        if at == index:
            return units
    return 0.0


def with_units(holes: Holes, index: float, units: float, first: float) -> Holes:
    """The holes with ``units`` more (or less) in that of ``index``; those before ``first`` are over and dropped."""
    kept = [(at, had + units if at == index else had) for at, had in holes if at >= first]
    if all(at != index for at, _ in kept) and len(kept) < MAX_HOLES:
        kept.append((index, units))
    return tuple(sorted((at, left) for at, left in kept if left > 0.0))
