"""Answers of real APIs, as their documentation shows them or as they were captured, and what they mean.

All are of the same moment, ``DATE``, and times in them were moved to fit.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from asgi_ratelimit.headers import ServerLimit, ServerLimits

DATE = "Thu, 26 Mar 2026 15:59:30 GMT"
SERVER_NOW = 1_774_540_770.0


@dataclass(frozen=True, kw_only=True)
class Example:
    """An answer of an API, and what a profile reads in it; ``auto`` says whether that profile is recognised."""

    profile: str
    headers: dict[str, str]
    expected: ServerLimits
    status: int = 200
    body: object = field(default=None)
    auto: bool = True


def read(
    *limits: ServerLimit, throttled: bool = False, retry_after: float | None = None, **rest: object
) -> ServerLimits:
    """What is expected of an answer."""
    return ServerLimits(profile="", limits=limits, is_throttled=throttled, retry_after=retry_after, **rest)  # type: ignore[arg-type]


def refused(retry_after: float | None, *limits: ServerLimit, **rest: object) -> ServerLimits:
    """What is expected of a refusal."""
    return read(*limits, throttled=True, retry_after=retry_after, **rest)


EXAMPLES: dict[str, Example] = {
    # Retry-After, and its kin in milliseconds
    "RFC 9110, a delay": Example(profile="auto", status=503, headers={"retry-after": "120"}, expected=refused(120.0)),
    "RFC 9110, a date": Example(
        profile="auto", status=429, headers={"retry-after": "Thu, 26 Mar 2026 16:00:30 GMT"}, expected=refused(60.0)
    ),
    "Retry-After of an answer that is no refusal": Example(
        profile="auto", headers={"retry-after": "0"}, expected=read()
    ),
    "Retry-After of a redirection": Example(profile="auto", status=301, headers={"retry-after": "5"}, expected=read()),
    "503 of a server that is down": Example(profile="auto", status=503, headers={}, expected=read()),
    "Azure OpenAI, milliseconds": Example(
        profile="openai",
        auto=False,
        status=429,
        headers={"retry-after-ms": "1250", "retry-after": "2"},
        expected=refused(1.25),
    ),
    "Azure Cosmos DB, milliseconds": Example(
        profile="auto", status=429, headers={"x-ms-retry-after-ms": "9"}, expected=refused(0.009)
    ),
    # the IETF drafts
    "IETF draft 11": Example(
        profile="ietf",
        headers={"ratelimit-policy": '"burst";q=100;w=60,"daily";q=1000;w=86400', "ratelimit": '"burst";r=50;t=30'},
        expected=read(
            ServerLimit(name="burst", limit=100, remaining=50, window=60, reset_after=30, reset_means="next unit"),
            ServerLimit(name="daily", limit=1000, window=86_400, reset_means="next unit"),
        ),
    ),
    "IETF draft 11, a partition and bytes": Example(
        profile="ietf",
        headers={
            "ratelimit-policy": '"peruser";q=65535;qu="content-bytes";w=10;pk=:sdfjLJUOUH==:',
            "ratelimit": '"peruser";r=999;pk=:sdfjLJUOUH==:',
        },
        expected=read(
            ServerLimit(
                name="peruser",
                limit=65_535,
                remaining=999,
                window=10,
                reset_means="next unit",
                unit="content-bytes",
                bucket="sdfjLJUOUA==",
            )
        ),
    ),
    "IETF draft 10, a refusal with problem details": Example(
        profile="ietf",
        status=429,
        headers={
            "retry-after": "5",
            "ratelimit-policy": '"default";q=100;w=60',
            "ratelimit": '"default";r=0;t=4',
        },
        body={
            "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
            "status": 429,
            "violated-policies": ["default"],
        },
        expected=refused(
            5.0,
            ServerLimit(limit=100, remaining=0, window=60, reset_after=4, reset_means="next unit"),
            scope="default",
        ),
    ),
    "IETF draft 8 of express-rate-limit": Example(
        profile="ietf",
        headers={
            "ratelimit-policy": '"10-in-1min"; q=10; w=60; pk=:NTkzYTgzZTAwZTA2:',
            "ratelimit": '"10-in-1min"; r=8; t=56; pk=:NTkzYTgzZTAwZTA2:',
        },
        expected=read(
            ServerLimit(
                name="10-in-1min",
                limit=10,
                remaining=8,
                window=60,
                reset_after=56,
                reset_means="next unit",
                bucket="NTkzYTgzZTAwZTA2",
            )
        ),
    ),
    "IETF draft 8 with a token for a name": Example(
        profile="ietf",
        headers={"ratelimit": "default;r=50;t=30"},
        expected=read(ServerLimit(remaining=50, reset_after=30, reset_means="next unit")),
    ),
    "IETF draft 7": Example(
        profile="ietf",
        headers={"ratelimit": "limit=100, remaining=50, reset=5", "ratelimit-policy": "100;w=60"},
        expected=read(ServerLimit(limit=100, remaining=50, window=60, reset_after=5)),
    ),
    "IETF drafts 0 to 6": Example(
        profile="ietf",
        headers={"ratelimit-limit": "100, 100;w=60", "ratelimit-remaining": "50", "ratelimit-reset": "50"},
        expected=read(ServerLimit(limit=100, remaining=50, window=60, reset_after=50)),
    ),
    "IETF drafts 5 and 6, with a policy": Example(
        profile="ietf",
        headers={
            "ratelimit-limit": "10",
            "ratelimit-policy": '10;w=1, 50;w=60;comment="sliding window"',
            "ratelimit-remaining": "9",
            "ratelimit-reset": "1",
        },
        expected=read(
            ServerLimit(limit=10, remaining=9, window=1, reset_after=1),
            ServerLimit(name="50;w=60", limit=50, window=60),
        ),
    ),
    "WHOOP": Example(
        profile="auto",
        headers={
            "x-ratelimit-limit": "100, 100;window=60, 10000;window=86400",
            "x-ratelimit-remaining": "98",
            "x-ratelimit-reset": "3",
        },
        expected=read(
            ServerLimit(limit=100, remaining=98, window=60, reset_after=3),
            ServerLimit(name="10000;w=86400", limit=10_000, window=86_400),
        ),
    ),
    # platforms
    "Discord": Example(
        profile="discord",
        headers={
            "x-ratelimit-limit": "5",
            "x-ratelimit-remaining": "0",
            "x-ratelimit-reset": "1774540771.250",
            "x-ratelimit-reset-after": "1.250",
            "x-ratelimit-bucket": "abcd1234",
        },
        expected=read(
            ServerLimit(limit=5, remaining=0, reset_after=1.25, reset_means="full refill", bucket="abcd1234")
        ),
    ),
    "Discord, without the delay": Example(
        profile="discord",
        headers={
            "x-ratelimit-limit": "5",
            "x-ratelimit-remaining": "0",
            "x-ratelimit-reset": "1774540771.250",
            "x-ratelimit-bucket": "abcd1234",
        },
        expected=read(
            ServerLimit(limit=5, remaining=0, reset_after=1.25, reset_means="full refill", bucket="abcd1234")
        ),
    ),
    "Discord, 429 of a shared resource": Example(
        profile="discord",
        status=429,
        headers={
            "via": "1.1 google",
            "x-ratelimit-limit": "10",
            "x-ratelimit-remaining": "9",
            "x-ratelimit-reset": "1774540834.57",
            "x-ratelimit-reset-after": "64.57",
            "x-ratelimit-bucket": "abcd1234",
            "retry-after": "1337",
            "x-ratelimit-scope": "shared",
        },
        body={"message": "The resource is being rate limited.", "retry_after": 1336.57, "global": False},
        expected=refused(
            1336.57,
            ServerLimit(limit=10, remaining=9, reset_after=64.57, reset_means="full refill", bucket="abcd1234"),
            scope="shared",
        ),
    ),
    "Discord, the global limit": Example(
        profile="discord",
        status=429,
        headers={"retry-after": "65", "x-ratelimit-global": "true", "x-ratelimit-scope": "global"},
        body={"message": "You are being rate limited.", "retry_after": 64.57, "global": True},
        expected=refused(64.57, scope="global", covers_all=True),
    ),
    "Discord, banned by Cloudflare": Example(
        profile="discord",
        auto=False,
        status=429,
        headers={"retry-after": "600", "content-type": "text/html"},
        expected=refused(600.0, scope="cloudflare"),
    ),
    "GitHub": Example(
        profile="github",
        headers={
            "x-ratelimit-limit": "5000",
            "x-ratelimit-remaining": "4987",
            "x-ratelimit-reset": "1774542570",
            "x-ratelimit-used": "13",
            "x-ratelimit-resource": "core",
        },
        expected=read(ServerLimit(limit=5000, remaining=4987, reset_after=1800, bucket="core")),
    ),
    "GitHub, 403 of the primary limit": Example(
        profile="github",
        status=403,
        headers={
            "x-ratelimit-limit": "60",
            "x-ratelimit-remaining": "0",
            "x-ratelimit-reset": "1774540800",
            "x-ratelimit-resource": "core",
        },
        body={"message": "API rate limit exceeded for 203.0.113.1."},
        expected=refused(30.0, ServerLimit(limit=60, remaining=0, reset_after=30, bucket="core"), scope="primary"),
    ),
    "GitHub, 403 of a secondary limit": Example(
        profile="github",
        status=403,
        headers={"x-github-request-id": "FA2D:87B1", "retry-after": "60"},
        body={"message": "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."},
        expected=refused(60.0, scope="secondary"),
    ),
    "GitHub, a secondary limit that names no time": Example(
        profile="github",
        status=403,
        headers={
            "x-ratelimit-limit": "5000",
            "x-ratelimit-remaining": "4000",
            "x-ratelimit-reset": "1774542570",
            "x-ratelimit-resource": "core",
        },
        body={"message": "You have exceeded a secondary rate limit."},
        expected=refused(
            60.0, ServerLimit(limit=5000, remaining=4000, reset_after=1800, bucket="core"), scope="secondary"
        ),
    ),
    "GitHub, 403 for another reason": Example(
        profile="github",
        status=403,
        headers={
            "x-ratelimit-limit": "5000",
            "x-ratelimit-remaining": "4000",
            "x-ratelimit-reset": "1774542570",
            "x-ratelimit-resource": "core",
        },
        body={"message": "Resource not accessible by integration"},
        expected=read(ServerLimit(limit=5000, remaining=4000, reset_after=1800, bucket="core")),
    ),
    "GitHub GraphQL, refused with 200": Example(
        profile="github",
        headers={
            "x-ratelimit-limit": "5000",
            "x-ratelimit-remaining": "0",
            "x-ratelimit-reset": "1774541070",
            "x-ratelimit-resource": "graphql",
        },
        body={"errors": [{"type": "RATE_LIMITED", "message": "API rate limit already exceeded for user ID 1."}]},
        expected=refused(
            300.0, ServerLimit(limit=5000, remaining=0, reset_after=300, bucket="graphql"), scope="primary"
        ),
    ),
    "GitHub GraphQL, the limit in the body": Example(
        profile="github",
        auto=False,
        headers={},
        body={
            "data": {"rateLimit": {"limit": 5000, "cost": 1, "remaining": 4999, "resetAt": "2026-03-26T16:29:30Z"}},
        },
        expected=read(ServerLimit(limit=5000, remaining=4999, reset_after=1800, cost=1)),
    ),
    "GitLab": Example(
        profile="gitlab",
        status=429,
        headers={
            "ratelimit-limit": "60",
            "ratelimit-name": "throttle_authenticated_web",
            "ratelimit-observed": "67",
            "ratelimit-remaining": "0",
            "ratelimit-reset": "1774540800",
            "ratelimit-resettime": "Thu, 26 Mar 2026 16:00:00 GMT",
            "retry-after": "30",
        },
        expected=refused(
            30.0,
            ServerLimit(limit=60, remaining=0, window=60, reset_after=30, bucket="throttle_authenticated_web"),
        ),
    ),
    "GitLab, an application limit": Example(
        profile="gitlab",
        status=429,
        headers={
            "ratelimit-limit": "2000",
            "ratelimit-name": "throttle_authenticated_api",
            "ratelimit-observed": "12",
            "ratelimit-remaining": "1988",
            "ratelimit-reset": "1774540800",
        },
        expected=refused(
            None,
            ServerLimit(limit=2000, remaining=1988, window=60, reset_after=30, bucket="throttle_authenticated_api"),
        ),
    ),
    "Slack": Example(profile="slack", auto=False, status=429, headers={"retry-after": "30"}, expected=refused(30.0)),
    "Reddit": Example(
        profile="reddit",
        auto=False,
        headers={"x-ratelimit-used": "2", "x-ratelimit-remaining": "598.0", "x-ratelimit-reset": "425"},
        expected=read(ServerLimit(limit=600, remaining=598, window=600, reset_after=425)),
    ),
    "X": Example(
        profile="x",
        headers={
            "x-rate-limit-limit": "900",
            "x-rate-limit-remaining": "899",
            "x-rate-limit-reset": "1774541670",
            "x-user-limit-24hour-limit": "1000",
            "x-user-limit-24hour-remaining": "0",
            "x-user-limit-24hour-reset": "1774627170",
        },
        expected=read(
            ServerLimit(limit=900, remaining=899, window=900, reset_after=900),
            ServerLimit(name="user-day", limit=1000, remaining=0, window=86_400, reset_after=86_400, scope="user"),
        ),
    ),
    "Notion": Example(
        profile="notion",
        status=429,
        headers={"x-notion-request-id": "2f6e0b36", "retry-after": "7"},
        body={"code": "rate_limited", "additional_data": {"rate_limit_reason": "workspace_limit"}},
        expected=refused(7.0, scope="workspace_limit"),
    ),
    "Notion, overloaded": Example(
        profile="notion",
        status=529,
        headers={"x-notion-request-id": "2f6e0b36", "retry-after": "3"},
        expected=refused(3.0, scope="overloaded"),
    ),
    # language models
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
    # businesses
    "Shopify REST": Example(
        profile="shopify",
        headers={"x-shopify-shop-api-call-limit": "32/40"},
        expected=read(ServerLimit(name="requests", limit=40, remaining=8, refill=2)),
    ),
    "Shopify REST, refused": Example(
        profile="shopify",
        status=429,
        headers={"x-shopify-shop-api-call-limit": "40/40", "retry-after": "2.0"},
        expected=refused(2.0, ServerLimit(name="requests", limit=40, remaining=0, refill=2)),
    ),
    "Shopify GraphQL": Example(
        profile="shopify",
        headers={"x-shopid": "1"},
        body={
            "data": {},
            "extensions": {
                "cost": {
                    "requestedQueryCost": 101,
                    "actualQueryCost": 46,
                    "throttleStatus": {"maximumAvailable": 1000, "currentlyAvailable": 954, "restoreRate": 50},
                }
            },
        },
        expected=read(ServerLimit(name="points", limit=1000, remaining=954, refill=50, cost=46, unit="points")),
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
        expected=refused(
            2.0,
            ServerLimit(name="points", limit=1000, remaining=402, refill=50, cost=502, unit="points"),
            scope="points",
        ),
    ),
    "Stripe": Example(
        profile="stripe",
        status=429,
        headers={"stripe-version": "2026-02-25", "stripe-rate-limited-reason": "endpoint-concurrency"},
        expected=refused(None, scope="endpoint-concurrency"),
    ),
    "HubSpot": Example(
        profile="hubspot",
        headers={
            "x-hubspot-ratelimit-daily": "1000000",
            "x-hubspot-ratelimit-daily-remaining": "999732",
            "x-hubspot-ratelimit-interval-milliseconds": "10000",
            "x-hubspot-ratelimit-max": "190",
            "x-hubspot-ratelimit-remaining": "189",
        },
        expected=read(
            ServerLimit(name="interval", limit=190, remaining=189, window=10),
            ServerLimit(name="daily", limit=1_000_000, remaining=999_732, window=86_400, scope="account"),
        ),
    ),
    "HubSpot, refused, with OAuth": Example(
        profile="hubspot",
        status=429,
        headers={
            "x-hubspot-ratelimit-interval-milliseconds": "10000",
            "x-hubspot-ratelimit-max": "110",
            "x-hubspot-ratelimit-remaining": "0",
        },
        body={"status": "error", "errorType": "RATE_LIMIT", "policyName": "TEN_SECONDLY_ROLLING"},
        expected=refused(
            10.0, ServerLimit(name="interval", limit=110, remaining=0, window=10), scope="TEN_SECONDLY_ROLLING"
        ),
    ),
    "Zendesk": Example(
        profile="zendesk",
        headers={
            "x-zendesk-request-id": "7f",
            "x-rate-limit": "700",
            "x-rate-limit-remaining": "699",
            "ratelimit-limit": "700",
            "ratelimit-remaining": "699",
            "ratelimit-reset": "41",
            "zendesk-ratelimit-tickets-index": "total=100; remaining=99; resets=41",
        },
        expected=read(
            ServerLimit(name="account", limit=700, remaining=699, window=60, reset_after=41, scope="account"),
            ServerLimit(name="tickets-index", limit=100, remaining=99, reset_after=41, scope="endpoint"),
        ),
    ),
    "Jira": Example(
        profile="jira",
        headers={
            "x-ratelimit-limit": "350",
            "x-ratelimit-remaining": "349",
            "x-ratelimit-nearlimit": "false",
            "beta-ratelimit-policy": '"tenant-app-quota";q=100100;w=3600',
            "beta-ratelimit": '"tenant-app-quota";r=100000;t=30',
        },
        expected=read(
            ServerLimit(
                name="tenant-app-quota",
                limit=100_100,
                remaining=100_000,
                window=3600,
                reset_after=30,
                reset_means="next unit",
            )
        ),
    ),
    "Jira, refused": Example(
        profile="jira",
        status=429,
        headers={
            "ratelimit-reason": "jira-burst-based",
            "x-ratelimit-limit": "350",
            "x-ratelimit-remaining": "0",
            "x-ratelimit-reset": "2026-03-26T16:00Z",
        },
        expected=refused(90.0, ServerLimit(limit=350, remaining=0, reset_after=90), scope="jira-burst-based"),
    ),
    "Confluence Data Center": Example(
        profile="confluence",
        headers={
            "x-ratelimit-limit": "1000",
            "x-ratelimit-remaining": "0",
            "x-ratelimit-interval-seconds": "60",
            "x-ratelimit-fillrate": "30",
            "retry-after": "0",
        },
        expected=read(ServerLimit(limit=1000, remaining=0, refill=0.5, scope="user")),
    ),
    "Azure Resource Manager": Example(
        profile="azure",
        headers={
            "x-ms-ratelimit-remaining-subscription-reads": "11999",
            "x-ms-ratelimit-remaining-resource": "Microsoft.Compute/HighCostGet3Min;159,"
            "Microsoft.Compute/HighCostGet30Min;1599",
        },
        expected=read(
            ServerLimit(name="subscription-reads", remaining=11_999),
            ServerLimit(name="microsoft.compute/highcostget3min", remaining=159, scope="resource provider"),
            ServerLimit(name="microsoft.compute/highcostget30min", remaining=1599, scope="resource provider"),
        ),
    ),
    "Azure Resource Manager, refused": Example(
        profile="azure",
        status=429,
        headers={"x-ms-ratelimit-remaining-subscription-writes": "0", "retry-after": "17"},
        expected=refused(17.0, ServerLimit(name="subscription-writes", remaining=0)),
    ),
    # odd ones, and names that many use
    "X-RateLimit-Reset since 1970": Example(
        profile="auto",
        headers={"x-ratelimit-limit": "60", "x-ratelimit-remaining": "7", "x-ratelimit-reset": "1774540800"},
        expected=read(ServerLimit(limit=60, remaining=7, reset_after=30)),
    ),
    "X-RateLimit-Reset from now": Example(
        profile="auto",
        headers={"x-ratelimit-limit": "60", "x-ratelimit-remaining": "7", "x-ratelimit-reset": "30"},
        expected=read(ServerLimit(limit=60, remaining=7, reset_after=30)),
    ),
    "diffcord, milliseconds since 1970": Example(
        profile="auto",
        headers={"x-ratelimit-limit": "60", "x-ratelimit-remaining": "7", "x-ratelimit-reset": "1774540800500"},
        expected=read(ServerLimit(limit=60, remaining=7, reset_after=30.5)),
    ),
    "rachio, ISO 8601": Example(
        profile="auto",
        headers={
            "x-ratelimit-limit": "1700",
            "x-ratelimit-remaining": "1694",
            "x-ratelimit-reset": "2026-03-27T00:00:00Z",
        },
        expected=read(ServerLimit(limit=1700, remaining=1694, reset_after=28_830)),
    ),
    "lemlist, as JavaScript writes dates": Example(
        profile="auto",
        headers={
            "x-ratelimit-limit": "20",
            "x-ratelimit-remaining": "7",
            "x-ratelimit-reset": "Thu Mar 26 2026 16:59:42 GMT+0100 (Central European Standard Time)",
        },
        expected=read(ServerLimit(limit=20, remaining=7, reset_after=12)),
    ),
    "Toast": Example(
        profile="auto",
        headers={"x-toast-ratelimit-remaining": "4", "x-toast-ratelimit-reset": "1774540800"},
        expected=read(ServerLimit(name="toast", remaining=4, reset_after=30)),
    ),
    "Guilds, from now": Example(
        profile="auto",
        headers={"x-rate-limit-limit": "40", "x-rate-limit-remaining": "0", "x-rate-limit-reset": "12"},
        status=429,
        expected=refused(12.0, ServerLimit(limit=40, remaining=0, reset_after=12)),
    ),
    "Kong, a limit for each period": Example(
        profile="auto",
        headers={
            "x-ratelimit-limit-minute": "10",
            "x-ratelimit-remaining-minute": "9",
            "x-ratelimit-limit-hour": "100",
            "x-ratelimit-remaining-hour": "99",
        },
        expected=read(
            ServerLimit(name="minute", limit=10, remaining=9), ServerLimit(name="hour", limit=100, remaining=99)
        ),
    ),
}
"""By a name that says what is special about it."""
