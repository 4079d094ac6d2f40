"""The log of mistakes and failures: a warning once, and a failure at most once a minute with a count."""

from __future__ import annotations

import logging
import math
from functools import cache

from .clock import monotonic_us

PAGE = "docs/warnings.md"
"""The page that explains the warnings: a path in the repository, until the docs are published."""

REPORT_EVERY_US = 60_000_000
"""The least number of microseconds between two reports of the same failure."""

logger = logging.getLogger("asgi_ratelimit")


def see(section: str) -> str:
    """The end of a warning, which names a section of that page."""
    return f"({PAGE}#{section})"


@cache
def warn_once(section: str, text: str) -> None:
    """Log a warning with a link to a section of the docs, once in this process."""
    logger.warning("%s %s", text, see(section))


class FailureLog:
    """Failures, by what failed. The first is logged at once, later ones at most once a minute, with their number."""

    def __init__(self) -> None:
        self._unreported: dict[object, tuple[float, int]] = {}

    def report(self, what: str, error: BaseException, of: object = None) -> None:
        """Log that ``what`` failed, unless that was logged within the last minute.

        ``of`` identifies what failed; the text does so by default.
        """
        times = self._counted(what if of is None else of)
        if times is not None:
            logger.error("%s%s: %r", what, times, error, exc_info=error)

    def warn(self, section: str, text: str, of: object) -> None:
        """Log a warning with a link to a section of the docs, unless the same one was logged in the last minute."""
        times = self._counted(of)
        if times is not None:
            logger.warning("%s%s %s", text, times, see(section))

    def _counted(self, of: object) -> str | None:
        """Count a failure; return how many went unreported, as text, or ``None`` if it is too soon for a report."""
        now = monotonic_us()
        reported_at, count = self._unreported.get(of, (-math.inf, 0))
        if now - reported_at < REPORT_EVERY_US:
            self._unreported[of] = reported_at, count + 1
            return None
        self._unreported[of] = now, 0
        return f" ({count + 1} times since the last report)" if count else ""
