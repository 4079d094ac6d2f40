"""Limits that no answer reports: the bounds between which a transport searches for them.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class HiddenRate:
    """The rate above which an API refuses: from ``floor`` to ``ceiling`` requests a second.

    The search begins at ``start``, by default at the floor. Wrong bounds raise ``ConfigurationError``.
    """

    floor: float
    ceiling: float
    start: float | None = None

    def __post_init__(self) -> None:
        """Refuse bounds between which there is no rate."""
        _require_bounds("rate", self.floor, self.ceiling, self.start, "aimd(0.5, 100)", least=1 / 86_400)


@dataclass(frozen=True, slots=True)
class HiddenConcurrency:
    """How many requests an API serves at once before it slows down: from ``floor`` to ``ceiling``.

    The search begins at ``start``, by default at the floor. Wrong bounds raise ``ConfigurationError``.
    """

    floor: int
    ceiling: int
    start: int | None = None

    def __post_init__(self) -> None:
        """Refuse bounds between which there is no number of requests."""
        _require_bounds("concurrency", self.floor, self.ceiling, self.start, "gradient(2, 100)", least=1)


def _require_bounds(
    what: str, floor: float, ceiling: float, start: float | None, example: str, *, least: float
) -> None:
    bounds = [floor, ceiling] if start is None else [floor, start, ceiling]
    are_numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in bounds)
    if not are_numbers or bounds != sorted(bounds) or not least <= bounds[0] <= bounds[-1] < math.inf:
        raise ConfigurationError(
            f"the bounds of a {what} are numbers of at least {least:.3g}, from the floor up to the ceiling, "
            f"not {bounds!r}: {example}"
        )
