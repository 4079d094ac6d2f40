"""Answers of Discord, GitHub, GitLab, Slack, Reddit, X and Notion."""

from __future__ import annotations

from asgi_ratelimit.headers import ServerLimit
from tests.headers.answers.example import Example, read, refused

EXAMPLES = {
    "Discord": Example(
        profile="discord",
        headers={
            "x-ratelimit-limit": "5",
            "x-ratelimit-remaining": "0",
            "x-ratelimit-reset": "1774540771.250",
            "x-ratelimit-reset-after": "1.250",
            "x-ratelimit-bucket": "abcd1234",
        },
        expected=read(ServerLimit(limit=5, remaining=0, reset_after=1.25, bucket="abcd1234")),
    ),
    "Discord, without the delay": Example(
        profile="discord",
        headers={
            "x-ratelimit-limit": "5",
            "x-ratelimit-remaining": "0",
            "x-ratelimit-reset": "1774540771.250",
            "x-ratelimit-bucket": "abcd1234",
        },
        expected=read(ServerLimit(limit=5, remaining=0, reset_after=1.25, bucket="abcd1234")),
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
            ServerLimit(limit=10, remaining=9, reset_after=64.57, bucket="abcd1234"),
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
}
