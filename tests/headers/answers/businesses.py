"""Answers of Shopify, Stripe, HubSpot, Zendesk, Jira, Confluence and Azure."""

from __future__ import annotations

from asgi_ratelimit.headers import ServerLimit
from tests.headers.answers.example import Example, read, refused

EXAMPLES = {
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
    "Shopify REST, Plus": Example(
        profile="shopify",
        headers={"x-shopify-shop-api-call-limit": "32/400"},
        expected=read(ServerLimit(name="requests", limit=400, remaining=368, refill=20)),
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
}
