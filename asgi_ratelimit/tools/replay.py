"""What limits do with the requests of a log, with the package's own rules, store and arithmetic.

Replays: whom given limits would have refused. Suggestions: limits that would refuse at most some share of the clients.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, TypeAlias

from starlette.types import Scope

from ..algorithms.take import ALGORITHMS, unused
from ..decision import Charge, Decision, with_charges
from ..errors import ConfigurationError, QuotaError
from ..inbound.config import LimitsFile
from ..inbound.penalties import apply_penalties
from ..inbound.plan import USUAL, Plan, RuleTable
from ..inbound.refusals import LimitUnavailable
from ..inbound.rules import CompiledRule, Rule
from ..inbound.user_functions import Failures
from ..keys.base import PathKey, ScopeKey
from ..quota_text import UNITS, parse_quotas
from ..quotas import SECOND_US, InFlight, Quota
from ..stores import MemoryStore
from ..testing import SteppedClock
from .coverage import quotas_as_text
from .log_lines import LoggedRequest

# Seconds of the parts of the time among which the worst moments are found.
MINUTE = 60

_RULES = '"/login 5/minute", "POST /orders/{id} 10/s burst 20", "/health exempt"'
_SCOPE = {"type": "http", "headers": [], "root_path": "", "query_string": b""}


class LoggedKey(ScopeKey):
    """The key of a request as the log has it."""

    def of(self, scope: Scope) -> str | None:
        """The key of the request with this scope."""
        return scope["client"][0] or None


LOGGED_KEY = LoggedKey()


def scope_of(request: LoggedRequest) -> Scope:
    """The scope of a request of a log."""
    _, key, method, path = request
    return {**_SCOPE, "method": method, "path": path, "client": (key, 0)}


def limits_of(quota: str | None, texts: Sequence[str]) -> RuleTable:
    """The limits of a quota for all requests, and of rules such as ``"POST /login 5/minute"``, one text each.

    Raises ``QuotaError`` and ``ConfigurationError``.
    """
    options = replace(USUAL, quota=quota, rules=tuple([_rule(text) for text in texts]), key=LOGGED_KEY)
    return RuleTable(options, Failures())


def limits_of_file(path: str) -> RuleTable:
    """The limits of a file, as ``RateLimitMiddleware(config=...)`` reads it.

    Keys are those of the log, except for parameters of the path: a log has no headers. Raises ``ConfigurationError``.
    """
    options = LimitsFile(path, USUAL).options
    rules = [rule if isinstance(rule.key, PathKey) else replace(rule, key=None) for rule in options.rules]
    return RuleTable(replace(options, key=LOGGED_KEY, rules=tuple(rules)), Failures())


def _rule(text: str) -> Rule:
    words = text.split()
    at = next((number for number, word in enumerate(words[:2]) if word.startswith("/")), None)
    if at is None or words[at + 1 :] == []:
        raise ConfigurationError(f"{text!r} is not a path and a quota: {_RULES}")
    methods, path, quota = words[:at], words[at], " ".join(words[at + 1 :])
    try:
        quotas = None if quota == "exempt" else parse_quotas(quota)
    except QuotaError as error:
        raise QuotaError(f"in {text!r}: {error}") from error
    return Rule(path, quotas, methods=methods[0].split(",") if methods else None, name=" ".join([*methods, path]))


@dataclass(slots=True)
class Count:
    """How many requests of a key, or in a minute, there were, how many were refused, and when first."""

    requests: int = 0
    refused: int = 0
    first_us: float = 0.0

    def add(self, time_us: float, is_refused: bool) -> None:
        """Count a request."""
        self.requests += 1
        self.refused += is_refused
        if is_refused and self.refused == 1:
            self.first_us = time_us


class Replay:
    """Decides the requests of a log under the rates among the rules of ``limits``, and counts.

    ``requests`` and ``refused`` count all of them. ``unlimited`` counts those that no rule charges, and ``keyless``
    those among them that have no key in the log. ``delayed`` counts those that would have waited for their slots.
    ``clients`` says, by the key of the log, who was refused. ``rules`` are the counts by the names of the rules, and
    by keys.
    """

    def __init__(self, limits: RuleTable) -> None:
        self._limits = limits
        self._clock = SteppedClock()
        self._store = MemoryStore(max_keys=10**12, clock=self._clock)  # none is ever forgotten
        self.requests = self.refused = self.unlimited = self.keyless = self.delayed = 0
        self.clients: dict[str, bool] = {}
        self.rules = {rule.name: defaultdict[str, Count](Count) for rule in limits.charging}
        self.minutes = defaultdict[int, Count](Count)
        self.start_us = self.end_us = 0.0

    async def run(self, requests: Iterable[LoggedRequest]) -> None:
        """Replay the requests, which must come in the order of their times."""
        for request in requests:
            time_us, key, _, _ = request
            self._clock.move_to(time_us / SECOND_US)
            is_refused = await self._refuses(request)
            self.requests += 1
            self.refused += is_refused
            if key:
                self.clients[key] = is_refused or self.clients.get(key, False)
            self.minutes[int(time_us // SECOND_US) // MINUTE].add(time_us, is_refused)
            self.start_us, self.end_us = self.start_us or time_us, time_us

    async def _refuses(self, request: LoggedRequest) -> bool:
        """Whether a request is refused."""
        scope = scope_of(request)
        plan = self._limits.plan_for(scope)
        try:
            planned = () if plan is None else plan.evaluate(scope)
            takes = planned if isinstance(planned, tuple) else await planned
        except LimitUnavailable:  # a function failed whose rule then lets nobody pass
            takes = ()
        takes = tuple([with_charges(take, rates) for take in takes if (rates := _without_places(take.charges))])
        if plan is None or not takes:
            self.unlimited += 1
            self.keyless += not request[1]
            return False
        is_refused = False
        for answer in self._store.take(takes):
            decision = answer
            if decision.charges[0].name not in plan.shadows:
                decision = self._delayed(plan, decision)
                is_refused = not decision.allowed
                if plan.punishes:
                    await apply_penalties(self._store, decision)  # a refusal stays one, and may block the key
            self._count(decision)
        return is_refused

    def _delayed(self, plan: Plan, decision: Decision) -> Decision:
        """A decision after the wait that rules allow."""
        if decision.allowed or not plan.may_wait:
            return decision
        refusing = zip(decision.states, plan.max_delays(decision.take))
        max_wait = min([max_delay for state, max_delay in refusing if not state.allowed])
        (decision,) = self._store.take([replace(decision.take, max_wait=max_wait)])
        self.delayed += decision.allowed
        return decision

    def _count(self, decision: Decision) -> None:
        """Count a decision, once for each of its rules."""
        refusing = {charge.name for charge in decision.refusing}
        for name, key in {charge.name: charge.key for charge in decision.charges}.items():
            self.rules[name][key].add(decision.now_us, name in refusing)  # type: ignore[index]  # a plan names all

    def report(self, top: int) -> dict[str, Any]:
        """The results, with the ``top`` clients of each rule and moments. Times are in seconds since the epoch."""
        names = ("requests", "refused", "unlimited", "delayed")
        return {
            **{name: getattr(self, name) for name in names},
            "clients": len(self.clients),
            "refused_clients": sum(self.clients.values()),
            "from": self.start_us / SECOND_US,
            "to": self.end_us / SECOND_US,
            "rules": [self._rule(rule, top) for rule in self._limits.charging],
            "worst": self._worst(top),
        }

    def _worst(self, top: int) -> list[dict[str, float]]:
        """The minutes with the most refusals, the worst one first."""
        worst = sorted([(-each.refused, at, each.requests) for at, each in self.minutes.items() if each.refused])
        return [
            {"from": float(at * MINUTE), "seconds": MINUTE, "requests": requests, "refused": -refused}
            for refused, at, requests in worst[:top]
        ]

    def _rule(self, rule: CompiledRule, top: int) -> dict[str, Any]:
        counts = self.rules[rule.name]
        refused = sorted([(-each.refused, each.first_us, key) for key, each in counts.items() if each.refused])
        worst = [
            {"key": key, "requests": counts[key].requests, "refused": -number, "first": time_us / SECOND_US}
            for number, time_us, key in refused[:top]
        ]
        return {
            "name": rule.name,
            "quota": quotas_as_text(rule),
            "shadow": rule.shadow,
            "requests": sum([each.requests for each in counts.values()]),
            "refused": sum([each.refused for each in counts.values()]),
            "clients": len(counts),
            "refused_clients": len(refused),
            "top": worst,
        }


def _without_places(charges: Iterable[Charge]) -> tuple[Charge, ...]:
    """The charges but those of requests in flight: a log does not say how long a request takes."""
    return tuple([charge for charge in charges if not isinstance(charge.quota, InFlight)])


# Suggestions


WINDOWS = ("second", "minute", "hour", "day")
# The default shares of clients that a limit may refuse.
SHARES = (0.0, 0.001, 0.01, 0.05)
QUANTILES = (0.5, 0.9, 0.99, 1.0)
# The kinds of quota, and how their texts end.
KINDS = {"bucket": "", "rolling": " rolling", "fixed": " fixed"}

# The times at which a client came, in microseconds and in order.
Times: TypeAlias = "array[float]"


def times_of(requests: Iterable[LoggedRequest], limits: RuleTable) -> dict[str, dict[str, Times]]:
    """The times of each client under each rule, by the name of the rule."""
    groups: dict[str, dict[str, Times]] = {rule.name: {} for rule in limits.charging}
    for request in requests:
        time_us, key, _, _ = request
        plan = limits.plan_for(scope_of(request))
        for name in {rule.name for rule in plan.rules} if plan and key else ():
            groups[name].setdefault(key, array("d")).append(time_us)
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

    limits, highest = {}, max([most for most, _ in most_of])
    for share in shares:
        low = bisect_left(range(highest), -share * len(clients), lo=1, key=lambda limit: -refused_clients(limit))
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
    state, refused = None, 0
    for time in times:
        after, _ = ALGORITHMS[type(quota)].take(quota, state or unused(quota, time), time, 1.0, 0.0, 0.0)
        state = after or state
        refused += after is None
        if refused >= at_most:
            break
    return refused
