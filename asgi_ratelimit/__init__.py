"""Rate limits for both sides: ASGI middleware for requests that come in, pacing for calls that go out."""

from .decision import Charge, Decision, QuotaState, Take
from .errors import (
    ConfigurationError,
    PaceTimeout,
    QuotaError,
    RateLimitError,
    StoreError,
    StoreTimeout,
    StoreUnavailable,
)
from .inbound import (
    Blocks,
    Penalty,
    RateLimit,
    RateLimited,
    RateLimitMiddleware,
    Rule,
    client_ip,
    combine,
    cookie,
    first_of,
    header,
    limited_responses,
    path_param,
    state,
    user,
)
from .limiter import Limiter, SyncLimiter
from .outbound import pace
from .quota_text import explain, parse_quotas
from .quotas import FixedWindow, Quota, RollingWindow, TokenBucket
from .stores import MemoryStore, RedisStore, Store, open_store

__all__ = [
    "Blocks",
    "Charge",
    "ConfigurationError",
    "Decision",
    "FixedWindow",
    "Limiter",
    "MemoryStore",
    "PaceTimeout",
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
    "TokenBucket",
    "client_ip",
    "combine",
    "cookie",
    "explain",
    "first_of",
    "header",
    "limited_responses",
    "open_store",
    "pace",
    "parse_quotas",
    "path_param",
    "state",
    "user",
]
