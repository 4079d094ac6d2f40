"""Suggestions: limits that would refuse at most some share of the clients in a log, by the package's own arithmetic.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, TypeAlias

from ..algorithms import ALGORITHMS, unused
from ..inbound.plan import RuleTable
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


def suggest(
    clients: Mapping[str, Times], shares: Sequence[float] = SHARES, kind: str = "bucket"
) -> Iterator[dict[str, Any]]:
    """For each window that is no longer than the log, the least limits that refuse at most these shares of clients.

    ``use`` is the most that clients use in a window, by ``QUANTILES``. The ``limits`` have two digits, rounded up, and
    are of a kind in ``KINDS``; with the clients and requests that each refuses.
    """
    times = [*clients.values()]
    span_us = max([each[-1] for each in times], default=0) - min([each[0] for each in times], default=0)
    for window in WINDOWS if times else ():
        if UNITS[window] * SECOND_US <= max(span_us, SECOND_US):
            most = sorted([_most_within(each, UNITS[window] * SECOND_US) for each in times])
            use = {f"{share:g}": most[math.ceil(share * len(most)) - 1] for share in QUANTILES}
            yield {"window": window, "use": use, "limits": _limits(times, shares, window, f"/{window}{KINDS[kind]}")}


def _limits(clients: Sequence[Times], shares: Sequence[float], window: str, suffix: str) -> list[dict[str, Any]]:
    # A client that never uses more than the limit within twice the period is never refused by any kind of quota.
    most_of = [(_most_within(times, 2 * UNITS[window] * SECOND_US), times) for times in clients]

    def refused(limit: int, at_most: float = math.inf) -> list[int]:
        (quota,) = parse_quotas(f"{limit}{suffix}")
        return [_refused(times, quota, at_most) for most, times in most_of if most > limit]

    @cache
    def refused_clients(limit: int) -> int:
        return sum(refused(limit, 1))

    limits = {}
    for share in shares:
        low, high = 1, max([most for most, _ in most_of])
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if refused_clients(middle) <= share * len(clients) else (middle + 1, high)
        step = int(10 ** max(len(str(low)) - 2, 0))
        limit = -(-low // step) * step
        choice = {"refused_clients": refused_clients(limit), "refused_requests": sum(refused(limit))}
        limits[limit] = {"quota": f"{limit}{suffix}", **choice}
    return [*limits.values()]


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
