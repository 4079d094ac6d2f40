"""Limits that no answer reports, as buckets: each request to the host needs them, and its outcome changes them.

Times are microseconds. No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import NamedTuple

from ....profiles import HiddenConcurrency, HiddenRate
from ....quotas import SECOND_US
from ..server_buckets import RETRY_US, Bucket
from .gradient_search import GradientSearch
from .rate_search import RateSearch

LATE_US = 2_000.0
"""A request that leaves late by up to this time does not delay the next one. Nor does one that waited and was woken
late, by up to the time between two requests."""

GAPS, LONGEST_GAP, MOST_GAPS = 4, 8.0, 2.0
"""The number of gaps between requests in the average, the longest gap that counts, and the largest average at which the
rate is assumed to hold requests up: at least half of the rate is used."""

NEVER_US = -1e15
"""The time of the last request before any was sent."""

SERVER_ERROR = 500

OVERLOADED = (503, 504, 529)
"""Statuses of a server that is overloaded."""


class Outcome(NamedTuple):
    """The outcome of a request. A refusal ``is_hidden`` if no limit that its answer reports is the reason for it."""

    status: int
    is_refused: bool = False
    is_hidden: bool = False
    wait_us: float = 0.0

    @property
    def is_served(self) -> bool:
        """Whether the server has carried out the request, or has said why it did not."""
        return not self.is_refused and self.status < SERVER_ERROR


class HiddenBucket(Bucket, ABC):
    """A bucket that learns from the outcomes of requests and from their times, not from what answers report."""

    @abstractmethod
    def judge(self, number: int, outcome: Outcome, now_us: float) -> str:
        """Learn from the answer to a request that ``send`` gave this number; return a large change, in words."""

    @property
    @abstractmethod
    def is_closed(self) -> bool:
        """Whether the server seems to refuse everything, so that requests have to stop for a while."""


class RateBucket(HiddenBucket):
    """Spaces requests evenly, at the rate that the search has reached."""

    def __init__(self, bounds: HiddenRate) -> None:
        super().__init__("hidden rate")
        self._ceiling = bounds.ceiling
        self._search = RateSearch(bounds)
        self._last_us = NEVER_US
        self._is_awaited = False
        """Whether a request waits, or has waited, for the next slot."""
        self._gaps = 0.0
        """The moving average of the time between two requests, as a multiple of the interval of the rate."""

    @property
    def limit(self) -> float:
        return self._search.rate

    def ready_at(self, now_us: float) -> float:
        at_us = math.ceil(self._last_us + self._interval_us)
        self._is_awaited |= at_us > now_us
        return max(now_us, at_us)

    def not_before(self, now_us: float) -> float:
        return max(now_us, self._last_us + SECOND_US / self._ceiling)

    def admit(self, now_us: float) -> int:
        interval_us = self._interval_us
        passed_us = now_us - self._last_us
        self._gaps += (min(passed_us / interval_us, LONGEST_GAP) - self._gaps) / GAPS
        late_us = max(passed_us - interval_us, 0.0)
        self._last_us = now_us - min(late_us, interval_us if self._is_awaited else LATE_US)
        self._is_awaited = False
        return super().admit(now_us)

    def send(self, now_us: float) -> int:
        super().send(now_us)
        return self._search.epoch

    def judge(self, number: int, outcome: Outcome, now_us: float) -> str:
        is_lowered = False
        if outcome.is_hidden:
            is_lowered = self._search.refused(number, outcome.wait_us, now_us)
        elif outcome.is_served:
            self._search.served(now_us, is_limited=self._gaps <= MOST_GAPS)
        return f"refused, on with {self.limit:.3g} requests a second" if is_lowered else ""

    @property
    def is_closed(self) -> bool:
        return self._search.in_a_row > 1

    @property
    def _interval_us(self) -> float:
        return SECOND_US / self._search.rate


class ConcurrencyBucket(HiddenBucket):
    """Lets as many requests be under way as the server presumably can take."""

    def __init__(self, bounds: HiddenConcurrency) -> None:
        super().__init__("hidden concurrency")
        self._search = GradientSearch(bounds)
        self._sent: dict[int, tuple[float, int]] = {}
        self._number = 0

    @property
    def limit(self) -> int:
        return self._search.limit

    def ready_at(self, now_us: float) -> float:
        return now_us if self.unsent + self.under_way < self.limit else now_us + RETRY_US

    def not_before(self, now_us: float) -> float:
        return now_us

    def send(self, now_us: float) -> int:
        super().send(now_us)
        self._number += 1
        self._sent[self._number] = now_us, self._search.epoch
        return self._number

    def judge(self, number: int, outcome: Outcome, now_us: float) -> str:
        sent_us, epoch = self._sent.pop(number)
        is_failed, is_lowered = outcome.is_hidden or outcome.status in OVERLOADED, False
        if is_failed or outcome.is_served:
            is_lowered = self._search.answered(now_us - sent_us, self.under_way, epoch, is_failed=is_failed)
        return f"overloaded, on with {self.limit} requests at once" if is_lowered else ""

    def end(self, number: int, now_us: float) -> None:
        if number in self._sent:
            self._search.died(now_us - self._sent.pop(number)[0])
        super().end(number, now_us)

    @property
    def is_closed(self) -> bool:
        return self._search.in_a_row > 1
