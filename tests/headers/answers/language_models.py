"""Answers of OpenAI, Groq and Anthropic."""

from __future__ import annotations

from asgi_ratelimit.headers import ServerLimit
from tests.headers.answers.example import Example, read, refused

EXAMPLES = {
    "OpenAI": Example(
        profile="openai",
        headers={
            "openai-version": "2020-10-01",
            "x-ratelimit-limit-requests": "60",
            "x-ratelimit-limit-tokens": "150000",
            "x-ratelimit-remaining-requests": "59",
            "x-ratelimit-remaining-tokens": "149984",
            "x-ratelimit-reset-requests": "1s",
            "x-ratelimit-reset-tokens": "6m0s",
        },
        expected=read(
            ServerLimit(name="requests", limit=60, remaining=59, reset_after=1, reset_means="full refill"),
            ServerLimit(
                name="tokens",
                limit=150_000,
                remaining=149_984,
                reset_after=360,
                reset_means="full refill",
                unit="tokens",
            ),
        ),
    ),
    "OpenAI, captured": Example(
        profile="openai",
        headers={
            "x-ratelimit-limit-requests": "5000",
            "x-ratelimit-limit-tokens": "160000",
            "x-ratelimit-limit-tokens_usage_based": "160000",
            "x-ratelimit-remaining-requests": "4999",
            "x-ratelimit-remaining-tokens": "159976",
            "x-ratelimit-remaining-tokens_usage_based": "159976",
            "x-ratelimit-reset-requests": "12ms",
            "x-ratelimit-reset-tokens": "9ms",
            "x-ratelimit-reset-tokens_usage_based": "9ms",
        },
        expected=read(
            ServerLimit(name="requests", limit=5000, remaining=4999, reset_after=0.012, reset_means="full refill"),
            *(
                ServerLimit(
                    name=name,
                    limit=160_000,
                    remaining=159_976,
                    reset_after=0.009,
                    reset_means="full refill",
                    unit=name,
                )
                for name in ("tokens", "tokens_usage_based")
            ),
        ),
    ),
    "OpenAI, no money left, which no wait ends": Example(
        profile="openai",
        status=429,
        headers={"openai-version": "2020-10-01"},
        body={"error": {"type": "insufficient_quota", "code": "insufficient_quota"}},
        expected=read(),
    ),
    "OpenAI, tokens exhausted": Example(
        profile="openai",
        status=429,
        headers={
            "x-ratelimit-limit-requests": "500",
            "x-ratelimit-limit-tokens": "10000",
            "x-ratelimit-remaining-requests": "499",
            "x-ratelimit-remaining-tokens": "0",
            "x-ratelimit-reset-requests": "120ms",
            "x-ratelimit-reset-tokens": "1m0s",
            "retry-after": "6",
        },
        body={"error": {"type": "tokens", "code": "rate_limit_exceeded"}},
        expected=refused(
            6.0,
            ServerLimit(name="requests", limit=500, remaining=499, reset_after=0.12, reset_means="full refill"),
            ServerLimit(
                name="tokens", limit=10_000, remaining=0, reset_after=60, reset_means="full refill", unit="tokens"
            ),
            scope="tokens",
        ),
    ),
    "Groq": Example(
        profile="groq",
        headers={
            "x-groq-region": "us-west-1",
            "x-ratelimit-limit-requests": "14400",
            "x-ratelimit-limit-tokens": "18000",
            "x-ratelimit-remaining-requests": "14370",
            "x-ratelimit-remaining-tokens": "17997",
            "x-ratelimit-reset-requests": "2m59.56s",
            "x-ratelimit-reset-tokens": "7.66s",
        },
        expected=read(
            ServerLimit(
                name="requests",
                limit=14_400,
                remaining=14_370,
                window=86_400,
                reset_after=179.56,
                reset_means="full refill",
            ),
            ServerLimit(
                name="tokens",
                limit=18_000,
                remaining=17_997,
                window=60,
                reset_after=7.66,
                reset_means="full refill",
                unit="tokens",
            ),
        ),
    ),
    "Anthropic": Example(
        profile="anthropic",
        headers={
            "anthropic-ratelimit-requests-limit": "50",
            "anthropic-ratelimit-requests-remaining": "49",
            "anthropic-ratelimit-requests-reset": "2026-03-26T15:59:31Z",
            "anthropic-ratelimit-tokens-limit": "38000",
            "anthropic-ratelimit-tokens-remaining": "38000",
            "anthropic-ratelimit-tokens-reset": "2026-03-26T15:59:29Z",
            "anthropic-ratelimit-input-tokens-limit": "30000",
            "anthropic-ratelimit-input-tokens-remaining": "29000",
            "anthropic-ratelimit-input-tokens-reset": "2026-03-26T15:59:32Z",
            "anthropic-ratelimit-output-tokens-limit": "8000",
            "anthropic-ratelimit-output-tokens-remaining": "0",
            "anthropic-ratelimit-output-tokens-reset": "2026-03-26T16:00:30Z",
        },
        expected=read(
            ServerLimit(name="requests", limit=50, remaining=49, reset_after=1, reset_means="full refill"),
            *(
                ServerLimit(
                    name=name,
                    limit=limit,
                    remaining=remaining,
                    reset_after=reset_after,
                    reset_means="full refill",
                    unit="tokens",
                )
                for name, limit, remaining, reset_after in (
                    ("tokens", 38_000, 38_000, 0),  # captured: a second before the date of the answer
                    ("input-tokens", 30_000, 29_000, 2),
                    ("output-tokens", 8000, 0, 60),
                )
            ),
        ),
    ),
    "Anthropic, unified": Example(
        profile="anthropic",
        headers={
            "anthropic-ratelimit-unified-status": "allowed",
            "anthropic-ratelimit-unified-5h-status": "allowed",
            "anthropic-ratelimit-unified-5h-reset": "1774548000",
            "anthropic-ratelimit-unified-5h-utilization": "0.25",
            "anthropic-ratelimit-unified-7d-status": "allowed",
            "anthropic-ratelimit-unified-7d-reset": "1775059170",
            "anthropic-ratelimit-unified-7d-utilization": "0.5",
            "anthropic-ratelimit-unified-representative-claim": "five_hour",
        },
        expected=read(
            *(
                ServerLimit(
                    name=f"unified-{name}",
                    limit=1,
                    remaining=remaining,
                    window=window,
                    reset_after=reset_after,
                    unit="share",
                    scope="account",
                )
                for name, remaining, window, reset_after in (
                    ("5h", 0.75, 18_000, 7230),
                    ("7d", 0.5, 604_800, 518_400),
                )
            ),
        ),
    ),
    "Anthropic, unified, refused without Retry-After": Example(
        profile="anthropic",
        status=429,
        headers={
            "anthropic-ratelimit-unified-status": "rejected",
            "anthropic-ratelimit-unified-5h-status": "rejected",
            "anthropic-ratelimit-unified-5h-reset": "1774548000",
            "anthropic-ratelimit-unified-5h-utilization": "0.998",
            "anthropic-ratelimit-unified-representative-claim": "five_hour",
        },
        expected=refused(
            7230.0,
            ServerLimit(
                name="unified-5h",
                limit=1,
                remaining=0,
                window=18_000,
                reset_after=7230,
                unit="share",
                scope="account",
            ),
            scope="five_hour",
        ),
    ),
    "Anthropic, unified, refused for requests": Example(
        profile="anthropic",
        status=429,
        headers={
            "anthropic-ratelimit-requests-limit": "50",
            "anthropic-ratelimit-requests-remaining": "0",
            "anthropic-ratelimit-requests-reset": "2026-03-26T16:00:30Z",
            "anthropic-ratelimit-unified-5h-reset": "1774548000",
            "anthropic-ratelimit-unified-5h-utilization": "0.998",
        },
        body={"type": "error", "error": {"type": "rate_limit_error"}},
        expected=refused(
            1.2,
            ServerLimit(name="requests", limit=50, remaining=0, reset_after=60, reset_means="full refill"),
            ServerLimit(
                name="unified-5h",
                limit=1,
                remaining=1.0 - 0.998,
                window=18_000,
                reset_after=7230,
                unit="share",
                scope="account",
            ),
            scope="rate_limit_error",
        ),
    ),
    "Anthropic, overloaded": Example(
        profile="anthropic",
        auto=False,
        status=529,
        headers={},
        body={"type": "error", "error": {"type": "overloaded_error"}},
        expected=refused(None, scope="overloaded"),
    ),
}
