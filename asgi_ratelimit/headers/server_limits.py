"""The limits of a server as one of its answers reports them, as values.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..buckets import DEFAULT_NAME
from ..profiles.definitions import ResetMeaning

SMALLEST_SHARE = 1e-6
"""The smallest share of a limit whose whole is 1: with less than this, nothing is left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimit:
    """One limit of a server, as an answer reports it; ``None`` for what the answer does not report.

    * ``limit`` and ``remaining`` are units of ``unit``; ``cost`` is the cost of this request.
    * ``window`` is in seconds; ``refill`` is units that come back each second.
    * ``reset_after`` is in seconds from now. ``reset_means`` says what it means: the ``"window end"``, when all of
      ``limit`` is available again; the ``"next unit"``, when more is available; or the ``"full refill"``, until which
      units come back one by one.
    * ``bucket`` identifies what is limited, beside ``name``; ``scope`` says whose limit it is.
    """

    name: str = DEFAULT_NAME
    limit: float | None = None
    remaining: float | None = None
    window: float | None = None
    reset_after: float | None = None
    reset_means: ResetMeaning = "window end"
    refill: float | None = None
    cost: float | None = None
    unit: str = "requests"
    bucket: str | None = None
    scope: str | None = None

    def wait(self, units: float | None = None) -> float | None:
        """Seconds until ``units`` are available, if nobody else takes any; ``None`` if the answer does not say.

        By default, these are as many units as this request cost, or one; for a limit that is a share, any part. Without
        a reset, the wait is the whole window. A wait that follows from a window or a refill has no bound.
        """
        if self.remaining is None:
            return None
        if units is None:
            units = self.cost or (SMALLEST_SHARE if self.unit == "share" else 1.0)
        missing = units - self.remaining
        if missing <= 0:
            return 0.0
        if self.refill:
            return missing / self.refill
        if self.reset_after is None:
            return self.window
        if self.reset_means == "full refill" and self.limit is not None and self.limit > self.remaining:
            return self.reset_after * min(missing / (self.limit - self.remaining), 1.0)
        return self.reset_after


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """Everything that an answer says about its server's limits, read by the profile of that name.

    * ``is_throttled``: whether the answer is a refusal because of a limit.
    * ``retry_after``: seconds to wait after a refusal, or ``None``. If the answer names no time, it is the time until
      the exhausted limits have a unit again.
    * ``scope``: whom or what the refusal concerns, in the words of the server. ``covers_all``: it concerns all requests
      to this server, not only those of this bucket.
    """

    profile: str
    limits: tuple[ServerLimit, ...] = ()
    is_throttled: bool = False
    retry_after: float | None = None
    scope: str | None = None
    covers_all: bool = False
