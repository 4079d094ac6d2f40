"""Rate limits for both sides: ASGI middleware for requests that come in, pacing for calls that go out."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from . import keys
from .decision import Charge, Decision, QuotaState, Take
from .errors import (
    ConfigurationError,
    QuotaError,
    RateLimitError,
    StoreError,
    StoreTimeout,
    StoreUnavailable,
)
from .inbound import (
    Blocks,
    HeaderOptions,
    Limits,
    Penalty,
    RateLimit,
    RateLimited,
    RateLimitMiddleware,
    Rule,
    limited_responses,
    limits,
)
from .keys import client_ip
from .limiter import Limiter, SyncLimiter, Ticket
from .outbound import AdaptiveTransport, PacedTransport, pace
from .overrides import Change, Override, Overrides
from .quota_text import explain, parse_quotas
from .quotas import FixedWindow, Quota, RollingWindow, TokenBucket
from .stores import MemoryStore, Store, open_store
from .waiting import PaceTimeout

if TYPE_CHECKING:
    from .stores.redis import RedisStore

__all__ = [
    "AdaptiveTransport",
    "Blocks",
    "Change",
    "Charge",
    "ConfigurationError",
    "Decision",
    "FixedWindow",
    "HeaderOptions",
    "Limiter",
    "Limits",
    "MemoryStore",
    "Override",
    "Overrides",
    "PaceTimeout",
    "PacedTransport",
    "Penalty",
    "Quota",
    "QuotaError",
    "QuotaState",
    "RateLimit",
    "RateLimitError",
    "RateLimitMiddleware",
    "RateLimited",
    "RedisStore",
    "RollingWindow",
    "Rule",
    "Store",
    "StoreError",
    "StoreTimeout",
    "StoreUnavailable",
    "SyncLimiter",
    "Take",
    "Ticket",
    "TokenBucket",
    "client_ip",
    "explain",
    "limited_responses",
    "limits",
    "open_store",
    "pace",
    "parse_quotas",
]


def __getattr__(name: str) -> Any:
    """Import ``RedisStore`` and read the version at first use, because the memory store needs no redis."""
    if name == "RedisStore":
        from .stores.redis import RedisStore

        return RedisStore
    if name == "__version__":
        from importlib.metadata import version

        return version("asgi-ratelimit-pacer")
    right = _right_import(name)
    if right and sys._getframe(1).f_code.co_name == "_handle_fromlist":  # that of ``from asgi_ratelimit import name``
        raise ImportError(right)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{right and ': '}{right}")


def _right_import(name: str) -> str:
    """The import of a name that stands elsewhere, or that other limiters have for one of these; else an empty text."""
    if name in keys.__all__:
        return f"from asgi_ratelimit.keys import {name}"
    if name in _ELSEWHERE:
        return f"from asgi_ratelimit.{_ELSEWHERE[name]} import {name}"
    return f"from asgi_ratelimit import {_OF_OTHERS[name]}" if name in _OF_OTHERS else ""


_ELSEWHERE = {
    **dict.fromkeys(("SteppedClock", "SteppedLimiter", "stepped_dependencies"), "testing"),
    **dict.fromkeys(("opentelemetry", "prometheus"), "metrics"),
    **dict.fromkeys(("PacedAdapter", "PacedMiddleware"), "clients"),
    **dict.fromkeys(("Event", "failures", "log_refusals"), "hooks"),
    "LearnedEstimate": "profiles",
    "coverage": "tools",
    "parse": "headers",
}

_OF_OTHERS = {
    "RateLimiter": "RateLimit",
    "RateLimiterMiddleware": "RateLimitMiddleware",
    "RateLimitExceeded": "RateLimited",
}
