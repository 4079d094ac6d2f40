"""Suggestions: limits that would refuse at most some share of the clients in a log, by the package's own arithmetic.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

from ..algorithms import ALGORITHMS, unused
from ..inbound.rule_table import RuleTable
from ..quota_text import parse_quotas
from ..quotas import SECOND_US, UNITS, Quota
from .logs import LoggedRequest
from .replay import scope_of

WINDOWS = ("second", "minute", "hour", "day")
SHARES = (0.0, 0.001, 0.01, 0.05)
"""The default shares of clients that a limit may refuse."""
QUANTILES = (0.5, 0.9, 0.99, 1.0)
KINDS = {"bucket": "", "rolling": " rolling", "fixed": " fixed"}
"""The kinds of quota, and how their texts end."""

Times: TypeAlias = "array[float]"
"""The times at which a client came, in microseconds and in order."""


def times_of(requests: Iterable[LoggedRequest], limits: RuleTable) -> dict[str, dict[str, Times]]:
    """The times of each client under each rule, by the name of the rule."""
    groups: dict[str, dict[str, Times]] = {rule.name: {} for rule in limits.charging}
    for request in requests:
        time_us, key, _, _ = request
        plan = limits.plan_for(scope_of(request))
        for rule in plan.rules if plan and key else ():
            groups[rule.name].setdefault(key, array("d")).append(time_us)
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


def suggest(clients: Mapping[str, Times], shares: Sequence[float] = SHARES, kind: str = "bucket") -> list[Suggestion]:
    """For each window that is no longer than the log, the least limits that refuse at most these shares of clients.

    Limits have two digits, rounded up, and are of a kind in ``KINDS``.
    """
    if not clients:
        return []
    span_us = max([times[-1] for times in clients.values()]) - min([times[0] for times in clients.values()])
    windows = [window for window in WINDOWS if UNITS[window] * SECOND_US <= max(span_us, SECOND_US)]
    return [_suggestion([*clients.values()], shares, window, KINDS[kind]) for window in windows]


def _suggestion(clients: Sequence[Times], shares: Sequence[float], window: str, suffix: str) -> Suggestion:
    period_us = UNITS[window] * SECOND_US
    most = sorted([_most_within(times, period_us) for times in clients])
    # A client that never uses more than the limit within twice the period is never refused by any kind of quota.
    within_two = [(_most_within(times, 2 * period_us), times) for times in clients]

    def refused(limit: int, at_most: float = math.inf) -> list[int]:
        (quota,) = parse_quotas(f"{limit}/{window}{suffix}")
        return [_refused(times, quota, at_most) for most, times in within_two if most > limit]

    @cache
    def refused_clients(limit: int) -> int:
        return sum(refused(limit, 1))

    def least(allowed: int) -> int:
        low, high = 1, max([most for most, _ in within_two])
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if refused_clients(middle) <= allowed else (middle + 1, high)
        return _rounded_up(low)

    limits = dict.fromkeys([least(math.floor(share * len(clients))) for share in shares])
    choices = [Choice(f"{each}/{window}{suffix}", refused_clients(each), sum(refused(each))) for each in limits]
    return Suggestion(window, tuple([most[math.ceil(share * len(most)) - 1] for share in QUANTILES]), tuple(choices))


def _most_within(times: Times, period_us: float) -> int:
    """The most requests in any interval of less than ``period_us``."""
    first = most = 0
    for last, time in enumerate(times):
        while time - times[first] >= period_us:
            first += 1
        most = max(most, last - first + 1)
    return most


def _refused(times: Times, quota: Quota, at_most: float) -> int:
    """How many of the requests a quota would refuse; counting ends at ``at_most``."""
    take, state, refused = ALGORITHMS[type(quota)].take, unused(quota, times[0]), 0
    for time in times:
        after, _ = take(quota, state, time, 1.0, 0.0, 0.0)
        if after is not None:
            state = after
            continue
        refused += 1
        if refused >= at_most:
            break
    return refused


def _rounded_up(limit: int) -> int:
    """A limit with two digits that count, such as 1,100 for 1,037."""
    step = int(10 ** max(len(str(limit)) - 2, 0))
    return -(-limit // step) * step
