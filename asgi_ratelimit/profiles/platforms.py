"""Platforms for chat, code, posts and pages, and language models, each with an API that limits its users.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

from .definitions import STANDARD_REFUSALS, Ban, HiddenRate, LimitHeaders, Profile, Refusal, Routes, alike

discord = Profile(
    name="discord",
    source="https://discord.com/developers/docs/topics/rate-limits",
    limits=(
        alike("x-ratelimit-*", reset=("x-ratelimit-reset-after", "x-ratelimit-reset"), bucket="x-ratelimit-bucket"),
    ),
    refusals=(
        Refusal((429,), (("via", ""), ("x-ratelimit-limit", ""), ("x-ratelimit-scope", "")), scope="cloudflare"),
        *STANDARD_REFUSALS,
    ),
    waits="body:retry_after",
    scopes="x-ratelimit-scope",
    covers_all=(("x-ratelimit-global", "true"), ("x-ratelimit-scope", "global"), ("body:global", "true")),
    routes=Routes(majors=(("channels", 1), ("guilds", 1), ("webhooks", 2)), id_digits=17, wildcards=("reactions",)),
    ban=Ban((401, 403, 429), 10_000, 600.0, uncounted=("shared",)),
    quota="48/s",  # of 50
    quota_exempt=("interactions",),
    signs=("x-ratelimit-bucket", "x-ratelimit-scope", "x-ratelimit-global"),
)

github = Profile(
    name="github",
    source="https://docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api",
    limits=(
        LimitHeaders(
            limit=("x-ratelimit-limit", "body:data.rateLimit.limit"),
            remaining=("x-ratelimit-remaining", "body:data.rateLimit.remaining"),
            used="x-ratelimit-used",
            cost="body:data.rateLimit.cost",
            reset=("x-ratelimit-reset", "body:data.rateLimit.resetAt"),
            bucket="x-ratelimit-resource",
        ),
    ),
    refusals=(
        Refusal((403, 429), (("body:message", "*secondary rate limit*"),), scope="secondary", wait=60.0),
        Refusal((403, 429), (("x-ratelimit-remaining", "0"),), scope="primary"),
        Refusal((403, 429), (("body:message", "*rate limit*"),), scope="primary", wait=60.0),
        Refusal((403,), (("retry-after", "*"),), scope="secondary"),
        Refusal((200,), (("body:errors.*.type", "rate_limit*"),), scope="primary", wait=60.0),
        Refusal((429,), wait=60.0),
        *STANDARD_REFUSALS,
    ),
    signs=("x-ratelimit-resource", "x-github-request-id"),
)

gitlab = Profile(
    name="gitlab",
    source="https://docs.gitlab.com/administration/settings/user_and_ip_rate_limits/",
    limits=(
        alike(
            "ratelimit-*",
            "limit remaining",
            used="ratelimit-observed",
            reset=("ratelimit-reset", "ratelimit-resettime"),
            window=60.0,
            bucket="ratelimit-name",
        ),
    ),
    signs=("ratelimit-observed", "ratelimit-name"),
)

slack = Profile(
    name="slack",
    source="https://docs.slack.dev/apis/web-api/rate-limits",
    hidden_rate=HiddenRate(0.01, 50.0, start=1.0),
)

reddit = Profile(
    name="reddit",
    source="https://support.reddithelp.com/hc/en-us/articles/16160319875092-Reddit-Data-API-Wiki",
    limits=(alike("x-ratelimit-*", "used remaining reset", reset_unit="s", window=600.0),),
)

x = Profile(
    name="x",
    source="https://docs.x.com/x-api/fundamentals/rate-limits",
    limits=(
        alike("x-rate-limit-*", reset_unit="epoch", window=900.0),
        alike("x-user-limit-24hour-*", name="user-day", reset_unit="epoch", window=86_400.0, scope="user"),
        alike("x-app-limit-24hour-*", name="app-day", reset_unit="epoch", window=86_400.0, scope="app"),
    ),
    routes=Routes(id_digits=2),
    signs=("x-user-limit-24hour-limit", "x-app-limit-24hour-limit"),
)

notion = Profile(
    name="notion",
    source="https://developers.notion.com/reference/request-limits",
    refusals=(*STANDARD_REFUSALS, Refusal((529,), scope="overloaded")),
    scopes="body:additional_data.rate_limit_reason",
    signs=("x-notion-request-id",),
)

openai = Profile(
    name="openai",
    source="https://platform.openai.com/docs/guides/rate-limits",
    limits=(alike("x-ratelimit-*-{name}", name="{name}", reset_means="full refill", unit="{name}"),),
    refusals=(Refusal((429,), (("body:error.code", "insufficient_quota"),), is_final=True), *STANDARD_REFUSALS),
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
