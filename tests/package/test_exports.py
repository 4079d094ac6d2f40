"""What users may import, and nothing else."""

from __future__ import annotations

import pytest

import asgi_ratelimit

NAMES = [
    "Blocks",
    "Charge",
    "ConfigurationError",
    "Covered",
    "Decision",
    "FixedWindow",
    "HeaderOptions",
    "Limiter",
    "Limits",
    "MemoryStore",
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
    "combine",
    "cookie",
    "coverage",
    "explain",
    "first_of",
    "header",
    "limited_responses",
    "limits",
    "open_store",
    "pace",
    "parse_quotas",
    "path_param",
    "state",
    "user",
]


def test_the_exports_are_these() -> None:
    """A name is added or taken away here as well, in order, and so on purpose."""
    assert asgi_ratelimit.__all__ == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_an_export_is_there_and_documented(name: str) -> None:
    """Everything public says what it is."""
    assert getattr(asgi_ratelimit, name).__doc__


def test_the_exceptions_are_one_tree() -> None:
    """One ``except`` catches all that the package raises by itself."""
    exports = [getattr(asgi_ratelimit, name) for name in NAMES]
    errors = [export for export in exports if isinstance(export, type) and issubclass(export, Exception)]
    assert len(errors) > 1
    assert all(issubclass(error, asgi_ratelimit.RateLimitError) for error in errors)
