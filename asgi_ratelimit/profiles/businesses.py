"""Services for shops, payments, customers and projects: Shopify, Stripe, HubSpot, Zendesk, Jira, Confluence and Azure.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

from .definitions import STANDARD_REFUSALS, HiddenRate, LimitHeaders, Profile, Refusal, alike

shopify = Profile(
    name="shopify",
    source="https://shopify.dev/docs/api/usage/limits",
    limits=(
        LimitHeaders(
            name="requests",
            used="x-shopify-shop-api-call-limit#0",
            limit="x-shopify-shop-api-call-limit#1",
            refill="x-shopify-shop-api-call-limit#1",
            refill_every=20.0,  # of each plan: 2 a second of 40, 4 of 80, 20 of 400
        ),
        LimitHeaders(
            name="points",
            limit="body:extensions.cost.throttleStatus.maximumAvailable",
            remaining="body:extensions.cost.throttleStatus.currentlyAvailable",
            refill="body:extensions.cost.throttleStatus.restoreRate",
            cost=("body:extensions.cost.actualQueryCost", "body:extensions.cost.requestedQueryCost"),
            needed="body:extensions.cost.requestedQueryCost",
            unit="points",
        ),
    ),
    refusals=(Refusal((200,), (("body:errors.*.extensions.code", "throttled"),), scope="points"), *STANDARD_REFUSALS),
    signs=("x-shopify-shop-api-call-limit", "x-shopid"),
)

stripe = Profile(
    name="stripe",
    source="https://docs.stripe.com/rate-limits",
    scopes="stripe-rate-limited-reason",
    hidden_rate=HiddenRate(1.0, 100.0, start=10.0),
    signs=("stripe-version", "stripe-rate-limited-reason"),
)

hubspot = Profile(
    name="hubspot",
    source="https://developers.hubspot.com/docs/developer-tooling/platform/usage-guidelines",
    limits=(
        LimitHeaders(
            name="interval",
            limit="x-hubspot-ratelimit-max",
            remaining="x-hubspot-ratelimit-remaining",
            window="x-hubspot-ratelimit-interval-milliseconds",
            window_unit="ms",
        ),
        LimitHeaders(
            name="daily",
            limit="x-hubspot-ratelimit-daily",
            remaining="x-hubspot-ratelimit-daily-remaining",
            window=86_400.0,
            scope="account",
        ),
    ),
    scopes="body:policyName",
    signs=("x-hubspot-ratelimit-max", "x-hubspot-ratelimit-remaining"),
)

zendesk = Profile(
    name="zendesk",
    source="https://developer.zendesk.com/api-reference/introduction/rate-limits/",
    limits=(
        alike(
            "ratelimit-*",
            name="account",
            limit=("ratelimit-limit", "x-rate-limit"),
            remaining=("ratelimit-remaining", "x-rate-limit-remaining"),
            reset_unit="s",
            window=60.0,
            scope="account",
        ),
        LimitHeaders(
            name="{name}",
            limit="zendesk-ratelimit-{name}#total",
            remaining="zendesk-ratelimit-{name}#remaining",
            reset="zendesk-ratelimit-{name}#resets",
            reset_unit="s",
            scope="endpoint",
        ),
    ),
    signs=("x-zendesk-request-id", "x-zendesk-origin-server"),
)

jira = Profile(
    name="jira",
    source="https://developer.atlassian.com/cloud/jira/platform/rate-limiting/",
    drafts=("ratelimit", "beta-ratelimit"),
    limits=(alike("x-ratelimit-*"),),
    scopes="ratelimit-reason",
    signs=("beta-ratelimit", "ratelimit-reason", "x-ratelimit-nearlimit"),
)

confluence = Profile(
    name="confluence",
    source="https://confluence.atlassian.com/doc/rate-limiting-992679004.html",
    limits=(
        alike(
            "x-ratelimit-*",
            "limit remaining",
            refill="x-ratelimit-fillrate",
            refill_every="x-ratelimit-interval-seconds",
            scope="user",
        ),
    ),
    signs=("x-ratelimit-fillrate",),
)

azure = Profile(
    name="azure",
    source="https://learn.microsoft.com/en-us/azure/azure-resource-manager/management/request-limits-and-throttling",
    limits=(
        LimitHeaders(name="{name}", remaining="x-ms-ratelimit-remaining-{name}"),
        LimitHeaders(name="{name}", remaining="x-ms-ratelimit-remaining-resource#{name}", scope="resource provider"),
    ),
    signs=(
        "x-ms-ratelimit-remaining-subscription-reads",
        "x-ms-ratelimit-remaining-subscription-writes",
        "x-ms-ratelimit-remaining-resource",
    ),
)
