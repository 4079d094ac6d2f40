"""Rate limits for both sides: ASGI middleware for requests that come in, pacing for calls that go out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .decision import Charge, Decision, QuotaState, Take
from .errors import ConfigurationError, QuotaError, RateLimitError, StoreError, StoreTimeout, StoreUnavailable
from .headers.header_rendering import HeaderOptions
from .inbound.dependency import RateLimit
from .inbound.limits import Limits, RateLimited, limits
from .inbound.middleware import RateLimitMiddleware
from .inbound.penalties import Blocks, Penalty
from .inbound.refusals import limited_responses
from .inbound.rules import Rule
from .keys import client_ip
from .limiter.limiter import Limiter, SyncLimiter
from .limiter.tickets import Ticket
from .outbound import AdaptiveTransport, PacedTransport, pace
from .overrides import Change, Override, Overrides
from .quota_text import explain, parse_quotas
from .quotas import FixedWindow, InFlight, Quota, RollingWindow, TokenBucket
from .stores import MemoryStore, Store, open_store
from .waiting.waiter import PaceTimeout

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
    "InFlight",
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
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
