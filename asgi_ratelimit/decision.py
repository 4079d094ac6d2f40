"""What is asked of a store, and what it answers: values only.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from .errors import ConfigurationError
from .quotas import MAX_UNITS, SECOND_US, Quota

DEFAULT_NAME = "default"


def checked_cost(cost: float) -> float:
    """``cost`` in units if it is a finite number above 0, at most 2**53; ``ValueError`` otherwise."""
    try:
        if 0 < cost <= MAX_UNITS:  # false for NaN, too
            return cost
    except TypeError:
        pass
    raise ValueError(f"cost must be a finite number above 0, at most 2**53, not {cost!r}: cost=1")


@dataclass(slots=True)
class Charge:
    """One line of a request's bill: ``cost`` units of ``quota``, from the bucket of ``key``.

    ``name`` is the limiter whose bucket it is; ``None`` means the one that takes the charge.
    Raises ``ValueError`` for a cost that is not a finite number above 0.
    """

    quota: Quota
    key: str
    cost: float = 1
    name: str | None = None

    def __post_init__(self) -> None:
        checked_cost(self.cost)

    @property
    def bucket(self) -> tuple[str, str, str]:
        """What tells this charge's bucket from all others: limiter, quota, key."""
        return (self.name or DEFAULT_NAME, self.quota.name, self.key)


@dataclass(slots=True)
class Take:
    """The charges of one request, decided as one, by a caller who waits at most ``max_wait`` seconds.

    0 is rate limiting, more is pacing, ``math.inf`` is to wait as long as it takes.
    Raises ``ValueError`` for a wait that is negative or no number, ``ConfigurationError`` for no charges, or for
    two on one bucket, which must be one charge of their sum.
    """

    charges: tuple[Charge, ...]
    max_wait: float = 0.0
    max_wait_us: float = field(init=False, repr=False, compare=False, default=0.0)
    """The longest wait in whole microseconds, rounded down."""

    def __post_init__(self) -> None:
        if self.max_wait:
            self.max_wait_us = _patience_us(self.max_wait)
        if len(self.charges) != 1:
            self._require_distinct_buckets()

    def _require_distinct_buckets(self) -> None:
        if not self.charges:
            raise ConfigurationError("a take needs at least one charge: Take((Charge(quota, key),))")
        buckets = [charge.bucket for charge in self.charges]
        for bucket in buckets:
            if buckets.count(bucket) > 1:
                raise ConfigurationError(f"two charges of one take are on the bucket {bucket}: add their costs up")


def _patience_us(max_wait: float) -> float:
    if max_wait == math.inf:
        return math.inf
    if max_wait >= 0:  # false for NaN, too
        return float(math.floor(max_wait * SECOND_US))
    raise ValueError(f"max_wait must be seconds from 0 up, not {max_wait!r}: max_wait=2.5")


@dataclass(slots=True)
class QuotaState:
    """What a decision says of one charge: times in seconds, ``remaining`` in whole units.

    ``retry_after`` is 0.0 where this charge alone would have passed, ``reset_after`` the time until its bucket is
    as good as new, ``more_after`` the time until one more unit than ``remaining`` is available (0.0: all are).
    """

    quota: Quota
    allowed: bool
    remaining: int
    retry_after: float
    reset_after: float
    more_after: float = 0.0


@dataclass(slots=True)
class Decision:
    """The answer to a take: complete, and never changed after it is built (not frozen, for speed alone).

    * ``allowed``, and ``granted`` units (0 when refused);
    * ``delay``: seconds to sleep before going ahead, ``ready_at`` the Unix time when that is over;
    * ``retry_after``: 0.0 when allowed, else the exact time in seconds after which the same take would pass if
      nothing else came; ``math.inf`` for never;
    * ``quota``: the binding one, which is the refusing one with the longest wait, else the one with the least left;
      ``remaining`` units and ``reset_after`` seconds are that quota's;
    * ``states``: one ``QuotaState`` for each charge of ``take``;
    * ``degraded``: decided without the store; ``shadow``: decided and counted, but not enforced.
    """

    allowed: bool
    granted: float
    delay: float
    retry_after: float
    remaining: int
    reset_after: float
    ready_at: float
    quota: Quota
    states: tuple[QuotaState, ...]
    degraded: bool = False
    shadow: bool = False
    take: Take | None = None
