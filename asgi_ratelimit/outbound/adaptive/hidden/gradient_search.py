"""Finds how many requests a server can take at once, from how much slower its answers become.

It is similar to Gradient2 of Netflix's concurrency-limits: the limit is multiplied by the ratio of the latency with few
requests to the latency now, and a small queue, the root of the limit, is allowed on top. In Gradient2, the former is a
long average, which drifts up if a client always has work. Here, it is measured: one window in 25 has a quarter of the
limit.

Times are microseconds. No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import math
from statistics import fmean

from ....profiles import HiddenConcurrency

WINDOW, PROBE = 10, 4
"""The least number of answers after which the limit is set anew, and the number that suffices to measure the
latency."""

TOLERANCE = 1.5
"""Answers that take up to this many times as long are not slow yet."""

SMOOTHING = 0.2
"""The part of the way to a new value that the limit goes at once, after it has fallen for the first time."""

PROBE_EVERY = 25
"""One window in this many has a quarter of the limit, to measure the latency with few requests."""


class GradientSearch:
    """A limit of requests under way, never outside its bounds; ``epoch`` counts the windows of answers that set it."""

    def __init__(self, bounds: HiddenConcurrency) -> None:
        self._floor, self._ceiling = float(bounds.floor), float(bounds.ceiling)
        self._limit = self._floor if bounds.start is None else float(bounds.start)
        self.latency_us = math.inf
        """The measured latency with few requests."""
        self.epoch = 0
        self.in_a_row = 0
        """How many windows have ended with a failure since the last answer that was not a failure."""
        self._latencies_us: list[float] = []
        self._most = 0
        self._has_fallen = False

    @property
    def limit(self) -> int:
        """How many requests may be under way."""
        limit = max(self._limit / 4, self._floor) if self._is_probe else self._limit
        return math.floor(limit + 1e-9)

    @property
    def _is_probe(self) -> bool:
        return self.epoch % PROBE_EVERY == 1

    def answered(self, latency_us: float, under_way: int, epoch: int, *, is_failed: bool) -> bool:
        """Learn from the answer to a request of this epoch; return whether a failure lowers the limit.

        ``under_way`` is the number of requests under way. A request of an earlier epoch says nothing about the limit
        now.
        """
        if not is_failed:
            self.in_a_row = 0
        if epoch != self.epoch:
            return False
        if is_failed:
            self.in_a_row += 1
            before, self._has_fallen = self._limit, True
            self._move_to(self._limit / 2)
            self._begin()
            return self._limit < before
        self._latencies_us.append(latency_us)
        self._most = max(self._most, under_way)
        if len(self._latencies_us) >= max(PROBE if self._is_probe else WINDOW, self.limit):
            self._learn(max(fmean(self._latencies_us), 1.0))
            self._begin()
        return False

    def died(self, latency_us: float) -> None:
        """Note that a request has failed without an answer: its time counts if it is longer than usual."""
        if latency_us > self.latency_us:
            self._latencies_us.append(latency_us)

    def _begin(self) -> None:
        self.epoch += 1
        self._latencies_us, self._most = [], 0

    def _learn(self, latency_us: float) -> None:
        if self._is_probe and self.latency_us < latency_us:
            self.latency_us = (self.latency_us + latency_us) / 2
        self.latency_us = min(self.latency_us, latency_us)
        if not self._is_probe and self._most >= self._limit / 2:
            gradient = max(min(TOLERANCE * self.latency_us / latency_us, 1.0), 0.5)
            self._has_fallen |= gradient < 1.0
            self._move_to(self._limit * gradient + math.sqrt(self._limit))

    def _move_to(self, limit: float) -> None:
        part = SMOOTHING if self._has_fallen else 1.0
        self._limit = min(max(self._limit + (limit - self._limit) * part, self._floor), self._ceiling)
