"""The counts of a replay: over time, and for each rule and key.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ...quotas import SECOND_US

MOST_BINS = 4096


class Timeline:
    """How many requests there were, and how many were refused, in parts of the time that grow as needed.

    A part lasts a second at first. When there would be more than ``MOST_BINS`` parts, each two become one.
    """

    def __init__(self) -> None:
        self.start_us = -1.0
        self.width_us = SECOND_US
        self.requests = [0] * MOST_BINS
        self.refused = [0] * MOST_BINS

    def add(self, time_us: float, is_refused: bool) -> None:
        """Count a request; times come in order."""
        if self.start_us < 0:
            self.start_us = time_us // SECOND_US * SECOND_US
        number = int((time_us - self.start_us) / self.width_us)
        while number >= MOST_BINS:
            self._halve()
            number >>= 1
        self.requests[number] += 1
        self.refused[number] += is_refused

    def _halve(self) -> None:
        self.width_us *= 2
        empty = [0] * (MOST_BINS // 2)
        self.requests = [*map(sum, zip(self.requests[::2], self.requests[1::2])), *empty]
        self.refused = [*map(sum, zip(self.refused[::2], self.refused[1::2])), *empty]

    def worst(self, count: int, most: int) -> list[Moment]:
        """The parts with the most refusals, among at most ``most`` equal parts of the time, the worst one first."""
        used = max((number for number, requests in enumerate(self.requests, 1) if requests), default=1)
        joined = -(-used // most)
        seconds = joined * self.width_us / SECOND_US
        moments = [
            Moment(
                (self.start_us + at * self.width_us) / SECOND_US,
                seconds,
                sum(self.requests[at : at + joined]),
                sum(self.refused[at : at + joined]),
            )
            for at in range(0, used, joined)
        ]
        worst = sorted(moments, key=lambda moment: -moment.refused)[:count]
        return [moment for moment in worst if moment.refused]


@dataclass(frozen=True, slots=True)
class Moment:
    """A part of the time: from ``time`` on, for ``seconds``."""

    time: float
    seconds: float
    requests: int
    refused: int


@dataclass(slots=True)
class KeyCount:
    """How many requests of a key there were, how many were refused, and when the first one was."""

    requests: int = 0
    refused: int = 0
    first_us: float = 0.0


@dataclass(slots=True)
class RuleCounts:
    """The counts of a rule; ``name`` is that of its bucket."""

    name: str
    is_shadow: bool = False
    keys: dict[str, KeyCount] = field(default_factory=dict)

    @property
    def requests(self) -> int:
        """The number of requests that it charged."""
        return sum([each.requests for each in self.keys.values()])

    @property
    def refused(self) -> int:
        """The number of these requests that it refused."""
        return sum([each.refused for each in self.keys.values()])

    @property
    def refused_keys(self) -> int:
        """How many keys were refused at least once."""
        return sum([1 for each in self.keys.values() if each.refused])

    def top(self, count: int) -> list[tuple[str, KeyCount]]:
        """The keys that were refused most, the worst one first."""
        worst = sorted(self.keys.items(), key=lambda item: (-item[1].refused, item[1].first_us))
        return [(key, each) for key, each in worst[:count] if each.refused]

    def add(self, key: str, time_us: float, is_refused: bool) -> None:
        """Count a request."""
        count = self.keys.get(key)
        if count is None:
            count = self.keys[key] = KeyCount()
        count.requests += 1
        if is_refused:
            count.refused += 1
            if count.refused == 1:
                count.first_us = time_us
