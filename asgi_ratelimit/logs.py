"""What is logged of mistakes and failures: a warning once, a failure at most once a minute with a count."""

from __future__ import annotations

import logging
import math
from functools import cache

from .clock import monotonic_us

PAGE = "docs/warnings.md"

REPORT_EVERY_US = 60_000_000
"""Microseconds between two reports of the same failure, at least."""

logger = logging.getLogger("asgi_ratelimit")


@cache
def warn_once(section: str, text: str) -> None:
    """Log a warning with a link to a section of the docs, once in this process."""
    logger.warning("%s (%s#%s)", text, PAGE, section)


class FailureLog:
    """Failures by what failed. The first is logged at once, later ones at most once a minute, with their number."""

    def __init__(self) -> None:
        self._unreported: dict[str, tuple[float, int]] = {}

    def report(self, what: str, error: Exception) -> None:
        """Log that ``what``, a constant text, failed, unless that was logged within the last minute."""
        now = monotonic_us()
        reported_at, count = self._unreported.get(what, (-math.inf, 0))
        if now - reported_at < REPORT_EVERY_US:
            self._unreported[what] = reported_at, count + 1
            return
        self._unreported[what] = now, 0
        times = f" ({count + 1} times since the last report)" if count else ""
        logger.error("%s%s: %r", what, times, error, exc_info=error)
