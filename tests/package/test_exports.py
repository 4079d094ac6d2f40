"""What users may import, and nothing else."""

from __future__ import annotations

from importlib import import_module
from inspect import isclass, isfunction
from types import ModuleType

import pytest

import asgi_ratelimit

# The public modules, and the names that each exports.
NAMES = {
    "asgi_ratelimit": """
        AdaptiveTransport Blocks Change Charge ConfigurationError Decision FixedWindow HeaderOptions InFlight
        Limiter Limits MemoryStore Override Overrides PaceTimeout PacedTransport Penalty Quota QuotaError QuotaState
        RateLimit RateLimitError RateLimitMiddleware RateLimited RedisStore RollingWindow Rule Store
        StoreError StoreTimeout StoreUnavailable SyncLimiter Take Ticket TokenBucket client_ip explain
        limited_responses limits open_store pace parse_quotas
    """,
    "asgi_ratelimit.clients": "PacedAdapter PacedMiddleware",
    "asgi_ratelimit.hooks": """
        ChangeHook ChangeKind Event Failure FailureHook Hook LimitChange ObservedRequest Result StoreCall
        failures log_refusals
    """,
    "asgi_ratelimit.dashboard": """
        Allow KeyCounts LearnedRow ProcessSummary QueueRow RuleSummary Summaries Summary dashboard summary
    """,
    "asgi_ratelimit.keys": """
        Key KeyFunction client_ip combine cookie first_of header path_param state user
    """,
    "asgi_ratelimit.metrics": "opentelemetry prometheus",
    "asgi_ratelimit.profiles": """
        PROFILES STANDARD_REFUSALS Ban HiddenRate LearnedEstimate LimitHeaders Profile
        Refusal Routes aimd anthropic anthropic_estimate anthropic_usage auto azure confluence discord
        github gitlab groq hubspot ietf jira model named notion openai openai_estimate openai_usage
        reddit shopify slack stripe x zendesk
    """,
    "asgi_ratelimit.testing": "SteppedClock SteppedLimiter stepped_dependencies",
    "asgi_ratelimit.tools": "Covered coverage",
}

# Type aliases, which have no docstring at run time.
TYPES = {"Allow", "ChangeHook", "ChangeKind", "FailureHook", "Hook", "Key", "KeyFunction", "Result"}

EXPORTS = [(module, name) for module, names in NAMES.items() for name in names.split() if name not in TYPES]


@pytest.mark.parametrize("module", NAMES)
def test_the_exports_are_these(module: str) -> None:
    """A name is added or removed here as well, in order, and so on purpose."""
    assert exported_by(import_module(module)) == NAMES[module].split()


@pytest.mark.parametrize(("module", "name"), EXPORTS)
def test_an_export_exists_and_is_documented(module: str, name: str) -> None:
    """Everything public says what it is."""
    assert getattr(import_module(module), name).__doc__


def test_the_exceptions_are_one_tree() -> None:
    """One ``except`` catches all that the package raises by itself."""
    exports = [getattr(asgi_ratelimit, name) for name in NAMES["asgi_ratelimit"].split()]
    errors = [export for export in exports if isinstance(export, type) and issubclass(export, Exception)]
    assert len(errors) > 1
    assert all(issubclass(error, asgi_ratelimit.RateLimitError) for error in errors)


def exported_by(module: ModuleType) -> list[str]:
    """The names in ``__all__``, or else the public classes and functions that the module defines."""
    defined = [name for name, value in vars(module).items() if isclass(value) or isfunction(value)]
    own = [name for name in defined if getattr(module, name).__module__ == module.__name__ and name[0] != "_"]
    return getattr(module, "__all__", own)
