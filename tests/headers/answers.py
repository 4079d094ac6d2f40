"""Answers of real APIs, as their documentation shows them or as they were captured, and what they mean.

All are of the same moment, ``DATE``, and times in them were moved to fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from asgi_ratelimit.headers import ServerLimit

DATE = "Thu, 26 Mar 2026 15:59:30 GMT"
SERVER_NOW = 1_774_540_770.0
IN_30_S, IN_1800_S, IN_7230_S = "1774540800", "1774542570", "1774548000"


@dataclass(frozen=True, kw_only=True)
class Example:
    """An answer of an API, and what a profile reads in it; ``auto`` says whether that profile is recognised.

    A refusal has a ``wait`` in seconds, or ``None``; an answer that is not one has ``...``.
    """

    profile: str
    headers: dict[str, str]
    status: int = 200
    body: object = None
    auto: bool = True
    limits: Sequence[ServerLimit] = ()
    wait: object = ...
    scope: str | None = None
    covers_all: bool = False


def under(prefix: str, **values: object) -> dict[str, str]:
    """Headers whose names begin alike; an underscore stands for a hyphen."""
    return {prefix + name.replace("_", "-"): str(value) for name, value in values.items()}


full = partial(ServerLimit, reset_means="full refill")
drafted = partial(ServerLimit, reset_means="next unit")
unified = partial(ServerLimit, limit=1, unit="share", scope="account")


STANDARDS = {
    "RFC 9110, a delay": Example(profile="auto", status=503, headers={"retry-after": "120"}, wait=120.0),
    "Retry-After of an answer that is no refusal": Example(profile="auto", headers={"retry-after": "0"}),
    "IETF draft 11": Example(
        profile="ietf",
        headers={"ratelimit-policy": '"burst";q=100;w=60,"daily";q=1000;w=86400', "ratelimit": '"burst";r=50;t=30'},
        limits=[
            drafted(name="burst", limit=100, remaining=50, window=60, reset_after=30),
            drafted(name="daily", limit=1000, window=86_400),
        ],
    ),
    "IETF draft 10, a refusal with problem details": Example(
        profile="ietf",
        status=429,
        headers={"retry-after": "5", "ratelimit-policy": '"default";q=100;w=60', "ratelimit": '"default";r=0;t=4'},
        body={"type": "https://iana.org/assignments/http-problem-types#quota-exceeded", "violated-policies": ["a"]},
        limits=[drafted(limit=100, remaining=0, window=60, reset_after=4)],
        wait=5.0,
        scope="a",
    ),
    "IETF draft 10, reduced capacity": Example(
        profile="ietf",
        status=503,
        headers={"ratelimit": '"default";r=0;t=20'},
        body={"type": "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"},
        limits=[drafted(remaining=0, reset_after=20)],
        wait=20.0,
        scope="temporary-reduced-capacity",
    ),
    "IETF draft 8 of express-rate-limit, a partition in the policy alone": Example(
        profile="ietf",
        headers={"ratelimit-policy": '"10-in-1sec"; q=10; w=1; pk=:MTJj:', "ratelimit": '"10-in-1sec"; r=9; t=1'},
        limits=[drafted(name="10-in-1sec", limit=10, remaining=9, window=1, reset_after=1, bucket="MTJj")],
    ),
    "IETF draft 8 with a token for a name": Example(
        profile="ietf", headers={"ratelimit": "default;r=50;t=30"}, limits=[drafted(remaining=50, reset_after=30)]
    ),
    "IETF draft 7": Example(
        profile="ietf",
        headers={"ratelimit": "limit=100, remaining=50, reset=5", "ratelimit-policy": "100;w=60"},
        limits=[ServerLimit(limit=100, remaining=50, window=60, reset_after=5)],
    ),
    "IETF drafts 5 and 6, with a policy": Example(
        profile="ietf",
        headers=under("ratelimit-", limit=10, policy='10;w=1, 50;w=60;comment="sliding"', remaining=9, reset=1),
        limits=[
            ServerLimit(limit=10, remaining=9, window=1, reset_after=1),
            ServerLimit(name="50;w=60", limit=50, window=60),
        ],
    ),
    "Docker Hub": Example(
        profile="ietf",
        headers=under("ratelimit-", limit="100;w=21600", remaining="76;w=21600"),
        limits=[ServerLimit(limit=100, remaining=76, window=21_600)],
    ),
    "WHOOP": Example(
        profile="auto",
        headers=under("x-ratelimit-", limit="100, 100;window=60, 10000;window=86400", remaining=98, reset=3),
        limits=[
            ServerLimit(limit=100, remaining=98, window=60, reset_after=3),
            ServerLimit(name="10000;w=86400", limit=10_000, window=86_400),
        ],
    ),
}

RESETS = {
    "since 1970": (IN_30_S, 30.0),
    "from now": ("30", 30.0),
    "milliseconds since 1970": ("1774540800500", 30.5),
    "ISO 8601": ("2026-03-27T00:00:00Z", 28_830.0),
    "as JavaScript writes dates": ("Thu Mar 26 2026 16:59:42 GMT+0100 (Central European Standard Time)", 12.0),
}
ODD = {
    f"X-RateLimit-Reset, {form}": Example(
        profile="auto",
        headers=under("x-ratelimit-", limit=60, remaining=7, reset=text),
        limits=[ServerLimit(limit=60, remaining=7, reset_after=seconds)],
    )
    for form, (text, seconds) in RESETS.items()
}
ODD |= {
    "Toast": Example(
        profile="auto",
        headers=under("x-toast-ratelimit-", remaining=4, reset=IN_30_S),
        limits=[ServerLimit(name="toast", remaining=4, reset_after=30)],
    ),
    "Gemini, a duration in the body": Example(
        profile="auto",
        status=429,
        headers={},
        body={"error": {"code": 429, "details": [{"@type": "Help"}, {"@type": "RetryInfo", "retryDelay": "34s"}]}},
        wait=34.0,
    ),
    "Kong, a limit for each period": Example(
        profile="auto",
        headers=under("x-ratelimit-", limit_minute=10, remaining_minute=9, limit_hour=100, remaining_hour=99),
        limits=[ServerLimit(name="minute", limit=10, remaining=9), ServerLimit(name="hour", limit=100, remaining=99)],
    ),
}

DISCORD_BUCKET = ServerLimit(limit=5, remaining=0, reset_after=1.25, bucket="abcd1234")
GITHUB = under("x-ratelimit-", limit=5000, remaining=4000, reset=IN_1800_S, used=1000, resource="core")
GITHUB_LIMIT = ServerLimit(limit=5000, remaining=4000, reset_after=1800, bucket="core")
PLATFORMS = {
    "Discord": Example(
        profile="discord",
        headers=under("x-ratelimit-", limit=5, remaining=0, reset="1774540777", reset_after="1.250", bucket="abcd1234"),
        limits=[DISCORD_BUCKET],
    ),
    "Discord, 429 of a shared resource": Example(
        profile="discord",
        status=429,
        headers={"via": "1.1 google", "retry-after": "1337", **under("x-ratelimit-", remaining=9, scope="shared")},
        body={"message": "The resource is being rate limited.", "retry_after": 1336.57, "global": False},
        limits=[ServerLimit(remaining=9)],
        wait=1336.57,
        scope="shared",
    ),
    "Discord, the global limit": Example(
        profile="discord",
        status=429,
        headers={"retry-after": "65", "x-ratelimit-global": "true", "x-ratelimit-scope": "global"},
        body={"message": "You are being rate limited.", "retry_after": 64.57, "global": True},
        wait=64.57,
        scope="global",
        covers_all=True,
    ),
    "Discord, banned by Cloudflare": Example(
        profile="discord", auto=False, status=429, headers={"retry-after": "600"}, wait=600.0, scope="cloudflare"
    ),
    "GitHub": Example(profile="github", headers=GITHUB, limits=[GITHUB_LIMIT]),
    "GitHub, 403 of the primary limit": Example(
        profile="github",
        status=403,
        headers=under("x-ratelimit-", limit=60, remaining=0, reset=IN_30_S, resource="core"),
        body={"message": "API rate limit exceeded for 203.0.113.1."},
        limits=[ServerLimit(limit=60, remaining=0, reset_after=30, bucket="core")],
        wait=30.0,
        scope="primary",
    ),
    "GitHub, a secondary limit that names no time": Example(
        profile="github",
        status=403,
        headers=GITHUB,
        body={"message": "You have exceeded a secondary rate limit."},
        limits=[GITHUB_LIMIT],
        wait=60.0,
        scope="secondary",
    ),
    "GitHub, 403 for another reason": Example(
        profile="github",
        status=403,
        headers=GITHUB,
        body={"message": "Resource not accessible by integration"},
        limits=[GITHUB_LIMIT],
    ),
    "GitHub GraphQL, refused with 200": Example(
        profile="github",
        headers=under("x-ratelimit-", limit=5000, remaining=0, reset=IN_30_S, resource="graphql"),
        body={"errors": [{"type": "RATE_LIMITED", "message": "API rate limit already exceeded for user ID 1."}]},
        limits=[ServerLimit(limit=5000, remaining=0, reset_after=30, bucket="graphql")],
        wait=30.0,
        scope="primary",
    ),
    "GitHub GraphQL, the limit in the body": Example(
        profile="github",
        auto=False,
        headers={},
        body={"data": {"rateLimit": {"limit": 5000, "cost": 1, "remaining": 4999, "resetAt": "2026-03-26T16:29:30Z"}}},
        limits=[ServerLimit(limit=5000, remaining=4999, reset_after=1800, cost=1)],
    ),
    "GitLab": Example(
        profile="gitlab",
        status=429,
        headers={
            **under("ratelimit-", limit=60, name="throttle_web", observed=67, remaining=0, reset=IN_30_S),
            "ratelimit-resettime": "Thu, 26 Mar 2026 16:00:00 GMT",
            "retry-after": "30",
        },
        limits=[ServerLimit(limit=60, remaining=0, window=60, reset_after=30, bucket="throttle_web")],
        wait=30.0,
    ),
    "Slack": Example(profile="slack", auto=False, status=429, headers={"retry-after": "30"}, wait=30.0),
    "Reddit": Example(
        profile="reddit",
        auto=False,
        headers=under("x-ratelimit-", used=2, remaining="598.0", reset=425),
        limits=[ServerLimit(limit=600, remaining=598, window=600, reset_after=425)],
    ),
    "X": Example(
        profile="x",
        headers={
            **under("x-rate-limit-", limit=900, remaining=899, reset=IN_1800_S),
            **under("x-user-limit-24hour-", limit=1000, remaining=0, reset=IN_7230_S),
        },
        limits=[
            ServerLimit(limit=900, remaining=899, window=900, reset_after=1800),
            ServerLimit(name="user-day", limit=1000, remaining=0, window=86_400, reset_after=7230, scope="user"),
        ],
    ),
    "Notion": Example(
        profile="notion",
        status=429,
        headers={"x-notion-request-id": "2f6e0b36", "retry-after": "7"},
        body={"code": "rate_limited", "additional_data": {"rate_limit_reason": "workspace_limit"}},
        wait=7.0,
        scope="workspace_limit",
    ),
}

LANGUAGE_MODELS = {
    "OpenAI": Example(
        profile="openai",
        headers={
            **under("x-ratelimit-", limit_requests=60, remaining_requests=59, reset_requests="12ms"),
            **under("x-ratelimit-", limit_tokens=10_000, remaining_tokens=0, reset_tokens="6m0s"),
            **under("x-ratelimit-", limit_tokens_usage_based=9, remaining_tokens_usage_based=8),
        },
        limits=[
            full(name="requests", limit=60, remaining=59, reset_after=0.012),
            full(name="tokens", limit=10_000, remaining=0, reset_after=360, unit="tokens"),
            full(name="tokens-usage-based", limit=9, remaining=8, unit="tokens-usage-based"),
        ],
    ),
    "OpenAI, no money left, which no wait ends": Example(
        profile="openai",
        status=429,
        headers={"openai-version": "2020-10-01"},
        body={"error": {"type": "insufficient_quota", "code": "insufficient_quota"}},
    ),
    "Groq": Example(
        profile="groq",
        headers={
            "x-groq-region": "us-west-1",
            **under("x-ratelimit-", limit_requests=14_400, remaining_requests=14_370, reset_requests="2m59.56s"),
            **under("x-ratelimit-", limit_tokens=18_000, remaining_tokens=17_997, reset_tokens="7.66s"),
        },
        limits=[
            full(name="requests", limit=14_400, remaining=14_370, window=86_400, reset_after=179.56),
            full(name="tokens", limit=18_000, remaining=17_997, window=60, reset_after=7.66, unit="tokens"),
        ],
    ),
    "Anthropic": Example(
        profile="anthropic",
        headers={
            **under("anthropic-ratelimit-requests-", limit=50, remaining=49, reset="2026-03-26T15:59:31Z"),
            **under("anthropic-ratelimit-tokens-", limit=38_000, remaining=38_000, reset="2026-03-26T15:59:29Z"),
            **under("anthropic-ratelimit-input-tokens-", limit=30_000, remaining=29_000, reset="2026-03-26T15:59:32Z"),
            **under("anthropic-ratelimit-output-tokens-", limit=8000, remaining=0, reset="2026-03-26T16:00:30Z"),
        },
        limits=[
            full(name="requests", limit=50, remaining=49, reset_after=1),
            # captured: a second late
            full(name="tokens", limit=38_000, remaining=38_000, reset_after=0, unit="tokens"),
            full(name="input-tokens", limit=30_000, remaining=29_000, reset_after=2, unit="tokens"),
            full(name="output-tokens", limit=8000, remaining=0, reset_after=60, unit="tokens"),
        ],
    ),
    "Anthropic, unified, refused without Retry-After": Example(
        profile="anthropic",
        status=429,
        headers={
            **under("anthropic-ratelimit-unified-", status="rejected", representative_claim="five_hour"),
            **under("anthropic-ratelimit-unified-5h-", status="rejected", reset=IN_7230_S, utilization=0.998),
        },
        limits=[unified(name="unified-5h", remaining=0, window=18_000, reset_after=7230)],
        wait=7230.0,
        scope="five_hour",
    ),
    "Anthropic, refused for requests, with a part of a share left": Example(
        profile="anthropic",
        status=429,
        headers={
            **under("anthropic-ratelimit-requests-", limit=50, remaining=0, reset="2026-03-26T16:00:30Z"),
            **under("anthropic-ratelimit-unified-5h-", status="allowed", reset=IN_7230_S, utilization=0.75),
            **under("anthropic-ratelimit-unified-7d-", status="allowed", reset="1775059170", utilization=0.5),
        },
        body={"type": "error", "error": {"type": "rate_limit_error"}},
        limits=[
            full(name="requests", limit=50, remaining=0, reset_after=60),
            unified(name="unified-5h", remaining=0.25, window=18_000, reset_after=7230),
            unified(name="unified-7d", remaining=0.5, window=604_800, reset_after=518_400),
        ],
        wait=1.2,
        scope="rate_limit_error",
    ),
    "Anthropic, overloaded": Example(
        profile="anthropic", auto=False, status=529, headers={}, wait=None, scope="overloaded"
    ),
}

BUSINESSES = {
    "Shopify REST": Example(
        profile="shopify",
        headers={"x-shopify-shop-api-call-limit": "32/40"},
        limits=[ServerLimit(name="requests", limit=40, remaining=8, refill=2)],
    ),
    "Shopify GraphQL, refused with 200": Example(
        profile="shopify",
        headers={"x-shopid": "1"},
        body={
            "errors": [{"message": "Throttled", "extensions": {"code": "THROTTLED"}}],
            "extensions": {
                "cost": {
                    "requestedQueryCost": 502,
                    "actualQueryCost": None,
                    "throttleStatus": {"maximumAvailable": 1000, "currentlyAvailable": 402, "restoreRate": 50},
                }
            },
        },
        limits=[ServerLimit(name="points", limit=1000, remaining=402, refill=50, cost=502, needed=502, unit="points")],
        wait=2.0,
        scope="points",
    ),
    "Stripe": Example(
        profile="stripe",
        status=429,
        headers={"stripe-version": "2026-02-25", "stripe-rate-limited-reason": "endpoint-concurrency"},
        wait=None,
        scope="endpoint-concurrency",
    ),
    "HubSpot": Example(
        profile="hubspot",
        status=429,
        headers=under(
            "x-hubspot-ratelimit-", daily=1000, daily_remaining=7, interval_milliseconds=10_000, max=190, remaining=0
        ),
        body={"status": "error", "errorType": "RATE_LIMIT", "policyName": "TEN_SECONDLY_ROLLING"},
        limits=[
            ServerLimit(name="interval", limit=190, remaining=0, window=10),
            ServerLimit(name="daily", limit=1000, remaining=7, window=86_400, scope="account"),
        ],
        wait=10.0,
        scope="TEN_SECONDLY_ROLLING",
    ),
    "Zendesk": Example(
        profile="zendesk",
        headers={
            "x-zendesk-request-id": "7f",
            **under("x-rate-limit", **{"": 700, "_remaining": 699}),
            **under("ratelimit-", limit=700, remaining=699, reset=41),
            "zendesk-ratelimit-tickets-index": "total=100; remaining=99; resets=41",
        },
        limits=[
            ServerLimit(name="account", limit=700, remaining=699, window=60, reset_after=41, scope="account"),
            ServerLimit(name="tickets-index", limit=100, remaining=99, reset_after=41, scope="endpoint"),
        ],
    ),
    "Jira": Example(
        profile="jira",
        headers={
            **under("x-ratelimit-", limit=350, remaining=349, nearlimit="false"),
            "beta-ratelimit-policy": '"tenant-app-quota";q=100100;w=3600',
            "beta-ratelimit": '"tenant-app-quota";r=100000;t=30',
        },
        limits=[drafted(name="tenant-app-quota", limit=100_100, remaining=100_000, window=3600, reset_after=30)],
    ),
    "Jira, refused": Example(
        profile="jira",
        status=429,
        headers={
            "ratelimit-reason": "jira-burst-based",
            **under("x-ratelimit-", limit=350, remaining=0, reset="2026-03-26T16:00Z"),
        },
        limits=[ServerLimit(limit=350, remaining=0, reset_after=90)],
        wait=90.0,
        scope="jira-burst-based",
    ),
    "Confluence Data Center": Example(
        profile="confluence",
        headers=under("x-ratelimit-", limit=1000, remaining=0, interval_seconds=60, fillrate=30),
        limits=[ServerLimit(limit=1000, remaining=0, refill=0.5, scope="user")],
    ),
    "Azure Resource Manager": Example(
        profile="azure",
        headers={
            "x-ms-ratelimit-remaining-subscription-reads": "11999",
            "x-ms-ratelimit-remaining-resource": "Microsoft.Compute/Get3Min;159,Microsoft.Compute/Get30Min;1599",
        },
        limits=[
            ServerLimit(name="subscription-reads", remaining=11_999),
            ServerLimit(name="microsoft.compute/get3min", remaining=159, scope="resource provider"),
            ServerLimit(name="microsoft.compute/get30min", remaining=1599, scope="resource provider"),
        ],
    ),
}

# By a name that says what is special about each.
EXAMPLES: dict[str, Example] = {**STANDARDS, **ODD, **PLATFORMS, **LANGUAGE_MODELS, **BUSINESSES}
