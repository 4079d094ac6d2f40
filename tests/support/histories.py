"""What was admitted in a random history, and that no interval holds more of it than its quota promises."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice

from asgi_ratelimit.quotas import FixedWindow, Quota, TokenBucket

# Units by which doubles may be off, where limits and factors are no sums of powers of two.
ROUNDING = Fraction(1, 10**6)


def ceiling(quota: Quota, first_us: int, last_us: int) -> Fraction | float:
    """The most units that a quota admits from one moment to another, both included; infinite where it says nothing."""
    period, span = round(quota.period_us), last_us - first_us
    if isinstance(quota, TokenBucket):
        return Fraction(quota.burst) + span * Fraction(quota.limit) / period
    if isinstance(quota, FixedWindow):
        return Fraction(quota.limit) if first_us // period == last_us // period else math.inf
    return Fraction(quota.limit) if span < period else math.inf


@dataclass
class Entry:
    """Units that were admitted at a moment, less those that were given back."""

    at_us: int
    units: Fraction


class Ledger:
    """What one bucket admitted; no longer ``bound`` by its quota after what no quota bounds."""

    def __init__(self, quota: Quota) -> None:
        self.quota = quota
        self.entries: list[Entry] = []
        self.bound = True

    def admit(self, at_us: int, units: float) -> Entry:
        """Note units at their slot. A cost above a burst, which only pacing admits, no interval has room for."""
        if units > self.quota.most:
            self.bound = False
        self.entries.append(Entry(at_us, Fraction(units)))
        return self.entries[-1]

    def require_ceiling(self) -> None:
        """No interval from one entry to another holds more than its ceiling."""
        entries = sorted(self.entries, key=lambda entry: entry.at_us)
        if isinstance(self.quota, TokenBucket):
            require_level(self.quota, entries)
            return
        for number, first in enumerate(entries):
            total = Fraction(0)
            for last in islice(entries, number, None):
                most = ceiling(self.quota, first.at_us, last.at_us)
                if most == math.inf:  # and so for all later ones
                    break
                total += last.units
                assert total <= most + ROUNDING, (self.quota, first, last, float(total), float(most))


def require_level(quota: TokenBucket, entries: list[Entry]) -> None:
    """The same in one pass: no interval holds more than the burst, less what drains meanwhile, if no level does."""
    level, last_us = Fraction(0), 0
    for entry in entries:
        drained = (entry.at_us - last_us) * Fraction(quota.limit) / round(quota.period_us)
        level, last_us = max(level - drained, Fraction(0)) + entry.units, entry.at_us
        assert level <= Fraction(quota.burst) + ROUNDING, (quota, entry, float(level))
