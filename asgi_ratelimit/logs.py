"""The log of mistakes and failures: a warning once, and a failure at most once a minute with a count."""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from itertools import count

from .clock import monotonic_us

logger = logging.getLogger("asgi_ratelimit")

# The page that explains the warnings: a path in the repository, until the docs are published.
PAGE = "docs/warnings.md"


@cache
def warn_once(section: str, text: str) -> None:
    """Log a warning with a link to a section of the docs, once in this process."""
    logger.warning("%s (%s#%s)", text, PAGE, section)


# No program has this many limits or stores; one that makes them in each call soon has made more.
MANY = 1000

# How many were made, by the section of the docs about them.
made: defaultdict[str, count[int]] = defaultdict(count)


def warn_of_many(section: str, text: str) -> None:
    """Called whenever something is made that each program makes once: log a warning if that is more than ``MANY``."""
    if next(made[section]) >= MANY:
        warn_once(section, f"more than {MANY:,} {text}")


class FailureLog:
    """Failures, by what failed. The first is logged at once, later ones at most once a minute, with their number.

    ``every_us`` and ``now_us`` are for another time than a minute, and another clock.
    """

    def __init__(self, every_us: float = 60_000_000, now_us: Callable[[], float] = monotonic_us) -> None:
        self._every_us, self._now_us = every_us, now_us
        self._unreported: dict[object, tuple[float, int]] = {}

    def report(self, what: str, error: BaseException, of: object = None) -> None:
        """Log that ``what`` failed, unless that was logged within the last minute.

        ``of`` identifies what failed; the text does so by default.
        """
        unreported = self.unreported(what if of is None else of)
        if unreported is not None:
            logger.error("%s%s: %r", what, _times(unreported), error, exc_info=error)

    def warn(self, section: str, text: str, of: object) -> None:
        """Log a warning with a link to a section of the docs, unless the same one was logged in the last minute."""
        unreported = self.unreported(of)
        if unreported is not None:
            logger.warning("%s%s (%s#%s)", text, _times(unreported), PAGE, section)

    def unreported(self, of: object) -> int | None:
        """Count a failure that is to be reported: how many went unreported before it; ``None`` if it is too soon."""
        now = self._now_us()
        reported_at, count = self._unreported.get(of, (-math.inf, 0))
        if now - reported_at < self._every_us:
            self._unreported[of] = reported_at, count + 1
            return None
        self._unreported[of] = now, 0
        return count


def _times(unreported: int) -> str:
    return f" ({unreported + 1} times since the last report)" if unreported else ""
