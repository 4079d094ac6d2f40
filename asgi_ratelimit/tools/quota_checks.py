"""Finds mistakes in valid limits: quotas that never decide, costs that never pass, and rules without requests.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Any

from ..errors import ConfigurationError
from ..inbound import RateLimitMiddleware
from ..inbound.config import USUAL, LimitsFile
from ..inbound.dependency import named_rules, require_depends
from ..inbound.functions.connection_functions import Failures
from ..inbound.rules import CompiledRule
from ..inbound.startup.app_routes import walk
from ..inbound.startup.route_names import require_names
from ..inbound.startup.startup_warnings import NO_LIMITS, evadable_limits, evadable_rules, unused_rules
from ..quota_text import as_text
from ..quotas import FixedWindow, Quota, RollingWindow, TokenBucket
from .coverage import named_rule


def findings(quotas: Sequence[Quota], cost: float = 1) -> Iterator[str]:
    """The mistakes in quotas that are charged together, each at a cost."""
    for quota in quotas:
        if cost > quota.most:
            yield f"a cost of {cost:g} never passes {as_text(quota)!r}, which gives at most {quota.most:g} at once"
    for number, quota in enumerate(quotas):
        for other, strict in enumerate(quotas):
            if number != other and dominates(strict, quota) and (number > other or not dominates(quota, strict)):
                yield f"{as_text(quota)!r} never decides, because {as_text(strict)!r} is always stricter: remove it"
                break


def rules_of(app: Any) -> tuple[list[CompiledRule], list[str]]:
    """The rules of an app's middlewares and dependencies that charge anything, and the mistakes in them."""
    routes = list(walk(app, builds=True))
    middlewares = {id(each.app): each for route in routes for each in route.middlewares}
    rules, problems = list[CompiledRule](), list[str]()
    limiting = [each for each in middlewares.values() if isinstance(each.app, RateLimitMiddleware)]
    for middleware in limiting:
        table = middleware.app.rule_table
        rules += [named_rule(rule, middleware) for rule in table.charging]
        problems += [*unused_rules(table.rules, middleware.app.app), *evadable_rules(table.rules)]
        problems += [*evadable_limits(table.charging), *_beside_own(table.charging)]
    problems += [NO_LIMITS] if limiting and all(each.app.limits_nothing for each in limiting) else []
    rules += [rule for named in named_rules(app).values() for rule in named]
    return rules, [*_mistakes_at_start(app), *problems, *_findings_of(rules)]


def _mistakes_at_start(app: Any) -> Iterator[str]:
    """Why a dependency never applies, or lacks a name: the app would not start within a middleware."""
    for require in (require_depends, require_names):
        try:
            require(app)
        except ConfigurationError as error:
            yield str(error)


def rules_of_file(path: str) -> tuple[list[CompiledRule], list[str]]:
    """The same for a file of limits. Raises ``ConfigurationError`` for an invalid file."""
    options = LimitsFile(path, USUAL).options
    rules = [*options.table(options.defaults(Failures()), "", None).charging]
    return rules, [*evadable_rules(rules), *evadable_limits(rules), *_beside_own(rules), *_findings_of(rules)]


def _findings_of(rules: Sequence[CompiledRule]) -> Iterator[str]:
    for rule in rules:
        if not callable(rule.quota):
            cost = 1 if callable(rule.cost) else rule.cost
            yield from [f"{rule.name}: {each}" for each in findings(rule.quota, cost)]


def _beside_own(rules: Sequence[CompiledRule]) -> Iterator[str]:
    """Rules of a middleware that never decide, because its own quota is stricter for the same keys."""
    own = next((rule for rule in rules if rule.source is None), None)
    if own is None or callable(own.quota):
        return
    for rule in rules:
        if rule is own or rule.is_final or rule.shadow or callable(rule.quota) or rule.key != own.key:
            continue
        has_effect = callable(rule.cost) or rule.cost != own.cost or not rule.quota or "OPTIONS" in (rule.methods or ())
        if not has_effect and all(any(map(dominates, own.quota, repeat(each))) for each in rule.quota):
            yield f"{rule.name}: it never decides, because {as_text(own.quota)!r} for all requests is always stricter"


def dominates(strict: Quota, quota: Quota) -> bool:
    """Whether ``quota`` never refuses what ``strict`` admits, whatever requests come; false if that is uncertain."""
    if isinstance(quota, FixedWindow):
        if isinstance(strict, FixedWindow) and quota.period_us % strict.period_us == 0:
            return strict.limit * (quota.period_us / strict.period_us) <= quota.limit
        if isinstance(strict, FixedWindow) and strict.period_us % quota.period_us == 0:
            return strict.limit <= quota.limit
        return most_within(strict, quota.period) <= quota.limit
    if isinstance(quota, RollingWindow):
        return most_within(strict, quota.period + quota.period / quota.buckets) <= quota.limit
    at_once = 2 * strict.limit if isinstance(strict, FixedWindow) else strict.most
    return quota.burst_allowance_factor == 1.0 and at_once <= quota.burst and _rate(strict) <= _rate(quota)


def most_within(quota: Quota, seconds: float) -> float:
    """An upper bound of the units that a quota admits in any interval of ``seconds``."""
    if isinstance(quota, TokenBucket):
        return quota.burst + seconds * _rate(quota)
    periods = seconds / quota.period
    return quota.limit * (math.floor(periods) + 2 if isinstance(quota, FixedWindow) else math.ceil(periods))


def _rate(quota: Quota) -> float:
    return quota.limit / quota.period
