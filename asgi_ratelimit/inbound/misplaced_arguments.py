"""Arguments that ``RateLimitMiddleware``, ``Rule`` and ``RateLimit`` do not have: where each belongs instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..argument_errors import OF_STORES, Instead
from ..errors import QuotaError
from ..quota_text import parse_quotas

_OF_RULES = {
    "path": 'Rule("/login", "5/minute")',
    "methods": 'Rule("/login", "5/minute", methods=["POST"])',
    "only": 'Rule("/login", "5/minute", only=True)',
    "settle": 'Rule("/login", "5/minute", settle=lambda status, headers: 0 if status < 400 else 1)',
    "messages": 'Rule("/chat", None, messages="20/s")',
    "shadow": 'Rule("/{path:path}", "5/minute", shadow=True)',
}

_OF_THE_MIDDLEWARE = {
    "hooks": "hooks=[hook]",
    "headers": 'headers="both"',
    "allow": "allow=is_staff",
    "deny": "deny=is_banned",
    "max_waiting": "max_waiting=100",
    "config": 'config="limits.toml"',
}

_SECONDS_OF = {"seconds": 1, "minutes": 60, "hours": 3600}
"""The keywords for the period of fastapi-limiter's dependency, and what one of each is in seconds."""


def _said_by_the_text(given: Mapping[str, Any]) -> str:
    """What to write instead of ``times=5, seconds=60``, with the same numbers."""
    return f'which the text of a quota says, RateLimit("{_quota(given)}")'


def _quota(given: Mapping[str, Any]) -> str:
    units = {unit: given[unit] for unit in _SECONDS_OF if given.get(unit)}
    try:
        unit = min(units, key=_SECONDS_OF.__getitem__, default="minutes")
        seconds = sum(count * _SECONDS_OF[each] for each, count in units.items())
        count = seconds / _SECONDS_OF[unit] if units else 1
        period = f"/{unit[:-1]}" if count == 1 else f" per {count:g} {unit}"
        text = f"{given.get('times', 2)}{period}"
        parse_quotas(text)
    except (TypeError, QuotaError):
        return "2 per 5 seconds"
    return text


def _of_the_middleware(before: str, uses: Mapping[str, str]) -> dict[str, Instead]:
    middleware = "which belongs to the middleware, RateLimitMiddleware(app, "
    return {name: f"{middleware}{before}{use})" for name, use in uses.items()}


MIDDLEWARE: Mapping[str, Instead] = {
    "limit": "did you mean 'quota'?",
    **{name: f"which is for a rule, {rule}" for name, rule in _OF_RULES.items()},
    **OF_STORES,
}

RULE: Mapping[str, Instead] = {
    "limit": "did you mean 'quota'?",
    **_of_the_middleware("rules=[...], ", {"store": 'store="redis://localhost"', **_OF_THE_MIDDLEWARE}),
    **OF_STORES,
}

DEPENDENCY: Mapping[str, Instead] = {
    "limit": "did you mean 'quota'?",
    **dict.fromkeys(("times", *_SECONDS_OF), _said_by_the_text),
    **{name: f"which is for a rule of the middleware, {rule}" for name, rule in _OF_RULES.items()},
    **_of_the_middleware("", _OF_THE_MIDDLEWARE),
    "settle": "call await limits(request).settle(cost) in the endpoint",
    **OF_STORES,
}
