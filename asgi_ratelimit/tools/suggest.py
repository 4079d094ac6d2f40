"""Suggestions: limits that would refuse at most some share of the clients in a log, by the package's own arithmetic.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from ..algorithms import ALGORITHMS, unused
from ..errors import ConfigurationError
from ..inbound.rule_table import RuleTable
from ..quota_text import parse_quotas
from ..quotas import SECOND_US, UNITS, Quota
from .logs import LoggedRequest
from .replay import LOGGED_KEY, MOST_PATHS, scope_of

WINDOWS = ("second", "minute", "hour", "day")
SHARES = (0.0, 0.001, 0.01, 0.05)
"""The default shares of clients that a limit may refuse."""
QUANTILES = (0.5, 0.9, 0.99, 1.0)
KINDS = {"bucket": "", "rolling": " rolling", "fixed": " fixed"}
"""The kinds of quota, and how their texts end."""


@dataclass(slots=True)
class Uses:
    """The times at which a client came, in microseconds and in order."""

    times: array[float] = field(default_factory=lambda: array("d"))

    def most_within(self, period_us: float) -> int:
        """The most requests in any interval of less than ``period_us``."""
        times, first, most = self.times, 0, 0
        for last, time in enumerate(times):
            while time - times[first] >= period_us:
                first += 1
            most = max(most, last - first + 1)
        return most

    def refused(self, quota: Quota, at_most: float = math.inf) -> int:
        """How many of the requests a quota would refuse; counting ends at ``at_most``."""
        take, state, refused = ALGORITHMS[type(quota)].take, unused(quota, self.times[0]), 0
        for time in self.times:
            after, _ = take(quota, state, time, 1.0, 0.0, 0.0)
            if after is not None:
                state = after
                continue
            refused += 1
            if refused >= at_most:
                break
        return refused


UsesByKey: TypeAlias = Mapping[str, Uses]


def uses_of(requests: Iterable[LoggedRequest], limits: RuleTable) -> dict[str, dict[str, Uses]]:
    """The uses of each client under each rule, by the name of the rule."""
    groups: dict[str, dict[str, Uses]] = {rule.name: {} for rule in limits.charging}
    keys, of_path = dict[str, str | None](), dict[tuple[str, str], list[dict[str, Uses]]]()
    for request in requests:
        time_us, logged, method, path = request
        charging = of_path.get((method, path))
        if charging is None:
            if len(of_path) >= MOST_PATHS:
                of_path.clear()
            plan = limits.plan_for(scope_of(request))
            charging = of_path[method, path] = [groups[rule.name] for rule in plan.rules] if plan else []
        if logged not in keys:
            keys[logged] = LOGGED_KEY.of(scope_of(request))
        if (key := keys[logged]) is None:
            continue
        for by_key in charging:
            uses = by_key.get(key)
            if uses is None:
                uses = by_key[key] = Uses()
            uses.times.append(time_us)
    return groups


@dataclass(frozen=True, slots=True)
class Choice:
    """A limit as text, and what it would refuse."""

    quota: str
    refused_clients: int
    refused_requests: int


@dataclass(frozen=True, slots=True)
class Suggestion:
    """For one length of window: the most that clients use, by ``QUANTILES``, and a choice for each share."""

    window: str
    quantiles: tuple[int, ...]
    choices: tuple[Choice, ...]


def suggest(uses: UsesByKey, shares: Sequence[float] = SHARES, kind: str = "bucket") -> list[Suggestion]:
    """For each window that is no longer than the log, the least limits that refuse at most these shares of clients.

    Limits have two digits, rounded up. Raises ``ConfigurationError`` for a kind that is not in ``KINDS``.
    """
    if kind not in KINDS:
        raise ConfigurationError(f"--kind must be one of {', '.join(KINDS)}, not {kind!r}: --kind rolling")
    if not uses:
        return []
    span_us = max([each.times[-1] for each in uses.values()]) - min([each.times[0] for each in uses.values()])
    windows = [window for window in WINDOWS if UNITS[window] * SECOND_US <= max(span_us, SECOND_US)]
    return [_suggestion(uses, shares, window, KINDS[kind]) for window in windows]


def _suggestion(uses: UsesByKey, shares: Sequence[float], window: str, suffix: str) -> Suggestion:
    search = _Search(uses, window, suffix)
    most = sorted([each.most_within(UNITS[window] * SECOND_US) for each in uses.values()])
    quantiles = tuple([most[math.ceil(share * len(most)) - 1] for share in QUANTILES])
    limits = dict.fromkeys([_rounded_up(search.least(math.floor(share * len(uses)))) for share in shares])
    return Suggestion(window, quantiles, tuple(map(search.choice, limits)))


class _Search:
    """Finds the least limits for a window."""

    def __init__(self, uses: UsesByKey, window: str, suffix: str) -> None:
        # A client that never uses more than the limit within twice the period is never refused by any kind of quota.
        period_us = 2 * UNITS[window] * SECOND_US
        self._by_use = sorted([(each.most_within(period_us), each) for each in uses.values()], key=_most, reverse=True)
        self._text = "{:d}/" + window + suffix
        self._refused: dict[int, int] = {}

    def least(self, clients: int) -> int:
        """The least limit that refuses at most ``clients`` clients."""
        low, high = 1, self._by_use[0][0]
        while low < high:
            middle = (low + high) // 2
            if self._refused_clients(middle) <= clients:
                high = middle
            else:
                low = middle + 1
        return low

    def choice(self, limit: int) -> Choice:
        """A limit, and what it refuses."""
        refused = [uses.refused(self._quota(limit)) for uses in self._above(limit)]
        return Choice(self._text.format(limit), sum([each > 0 for each in refused]), sum(refused))

    def _refused_clients(self, limit: int) -> int:
        if limit not in self._refused:
            quota = self._quota(limit)
            self._refused[limit] = sum([uses.refused(quota, 1) for uses in self._above(limit)])
        return self._refused[limit]

    def _above(self, limit: int) -> Iterable[Uses]:
        """The uses of clients that may be refused."""
        for most, uses in self._by_use:
            if most <= limit:
                return
            yield uses

    def _quota(self, limit: int) -> Quota:
        return parse_quotas(self._text.format(limit))[0]


def _most(item: tuple[int, Uses]) -> int:
    return item[0]


def _rounded_up(limit: int) -> int:
    """A limit with two digits that count, such as 1,100 for 1,037."""
    step = int(10 ** max(len(str(limit)) - 2, 0))
    return -(-limit // step) * step
