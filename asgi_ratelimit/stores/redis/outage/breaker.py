"""The breaker: after a failure nobody waits for the store, except for one caller at a time that probes it."""

from __future__ import annotations

from collections.abc import Callable

PROBE_INTERVAL_US = 100_000.0
"""Microseconds from a failure to the next probe."""


class Breaker:
    """Closed while the store answers; open from the first failure until a probe succeeds.

    ``now`` is a clock in microseconds that never jumps. A probe that has not ended within ``probe_timeout_us`` is
    abandoned, and another caller may probe.
    """

    def __init__(self, now: Callable[[], float], probe_timeout_us: float) -> None:
        self._now = now
        self._probe_timeout_us = probe_timeout_us
        self._next_probe = 0.0
        self.is_open = False

    def begin_call(self) -> bool:
        """Whether the caller may call the store; while the breaker is open, that makes it the probe."""
        if not self.is_open:
            return True
        now = self._now()
        if now < self._next_probe:
            return False
        self._next_probe = now + self._probe_timeout_us
        return True

    def record_failure(self) -> None:
        """Open the breaker: the store has not answered."""
        self.is_open = True
        self._next_probe = self._now() + PROBE_INTERVAL_US

    def record_success(self) -> None:
        """Close the breaker: the store has answered."""
        self.is_open = False
