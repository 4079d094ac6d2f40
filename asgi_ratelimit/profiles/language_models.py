"""APIs of language models, which count requests and tokens: OpenAI, Groq and Anthropic.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

from .definitions import STANDARD_REFUSALS, LimitHeaders, Profile, Refusal, alike

NO_MONEY = Refusal((429,), (("body:error.code", "insufficient_quota"),), is_final=True)

openai = Profile(
    name="openai",
    source="https://platform.openai.com/docs/guides/rate-limits",
    limits=(alike("x-ratelimit-*-{name}", name="{name}", reset_means="full refill", unit="{name}"),),
    refusals=(NO_MONEY, *STANDARD_REFUSALS),
    scopes="body:error.type",
    signs=("openai-version", "x-ratelimit-limit-requests", "x-ratelimit-limit-tokens"),
)

groq = Profile(
    name="groq",
    source="https://console.groq.com/docs/rate-limits",
    limits=(
        alike("x-ratelimit-*-requests", name="requests", reset_means="full refill", window=86_400.0, unit="requests"),
        alike("x-ratelimit-*-tokens", name="tokens", reset_means="full refill", window=60.0, unit="tokens"),
        *openai.limits,
    ),
    scopes="body:error.type",
    signs=("x-groq-region",),
)


def _of_anthropic(name: str, unit: str) -> LimitHeaders:
    return alike(f"anthropic-ratelimit-{name}-*", name=name, reset_means="full refill", unit=unit)


def _unified(name: str, window: float) -> LimitHeaders:
    return alike(
        f"anthropic-ratelimit-unified-{name}-*",
        "utilization reset",
        name=f"unified-{name}",
        window=window,
        unit="share",
        scope="account",
        exhausted=(f"anthropic-ratelimit-unified-{name}-status", "rejected"),
    )


anthropic = Profile(
    name="anthropic",
    source="https://docs.anthropic.com/en/api/rate-limits",
    limits=(
        _of_anthropic("requests", "requests"),
        *(_of_anthropic(name, "tokens") for name in ("tokens", "input-tokens", "output-tokens")),
        _unified("5h", 18_000.0),
        _unified("7d", 604_800.0),
        _of_anthropic("{name}", "{name}"),
    ),
    refusals=(*STANDARD_REFUSALS, Refusal((529,), scope="overloaded")),
    scopes=("anthropic-ratelimit-unified-representative-claim", "body:error.type"),
    signs=(
        "anthropic-ratelimit-requests-limit",
        "anthropic-ratelimit-tokens-limit",
        "anthropic-ratelimit-unified-status",
        "anthropic-ratelimit-unified-5h-utilization",
    ),
)
