"""The breaker: after a failure nobody waits for the store, but one caller at a time who tries whether it is back."""

from __future__ import annotations

from collections.abc import Callable

PROBE_EVERY_US = 100_000.0
"""Microseconds from a failure, or a failed try, to the next try."""


class Breaker:
    """Closed while the store answers, open from its first failure on.

    ``now`` is a clock in microseconds that never jumps; a try that has told no end within ``patience_us`` is given up.
    """

    def __init__(self, now: Callable[[], float], patience_us: float) -> None:
        self._now = now
        self._patience_us = patience_us
        self._next_try = 0.0
        self.is_open = False

    def lets_through(self) -> bool:
        """Whether the caller may go to the store; while it is open, that makes the caller the one who tries."""
        if not self.is_open:
            return True
        now = self._now()
        if now < self._next_try:
            return False
        self._next_try = now + self._patience_us
        return True

    def failed(self) -> None:
        """The store has not answered."""
        self.is_open = True
        self._next_try = self._now() + PROBE_EVERY_US

    def succeeded(self) -> None:
        """The store has answered."""
        self.is_open = False
