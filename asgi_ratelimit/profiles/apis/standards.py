"""Headers by standard or by habit, whichever API sends them.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

from ..definitions import STANDARD_REFUSALS, LimitHeaders, Profile, Refusal

VIOLATED = "body:violated-policies.*"
"""The names of the violated policies, in problem details (RFC 9457) of the type ``quota-exceeded``."""

PROBLEMS = (
    Refusal((503,), (("body:type", "*temporary-reduced-capacity"),), scope="temporary-reduced-capacity"),
    Refusal((429,), (("body:type", "*abnormal-usage-detected"),), scope="abnormal-usage-detected"),
    *STANDARD_REFUSALS,
)
"""The problem types of the draft; the third type, ``quota-exceeded``, is what any 429 is about."""

DRAFTS_00_TO_06 = LimitHeaders(
    limit="ratelimit-limit",
    remaining="ratelimit-remaining",
    reset="ratelimit-reset",
    policies=("ratelimit-policy", "ratelimit-limit"),
)
"""A time since 1970 in ``RateLimit-Reset``, as GitLab sends it, is recognised by its size."""

X_RATELIMIT = LimitHeaders(
    limit="x-ratelimit-limit",
    remaining="x-ratelimit-remaining",
    used="x-ratelimit-used",
    reset=("x-ratelimit-reset-after", "x-ratelimit-reset", "x-ratelimit-reset-at"),
    policies="x-ratelimit-limit",
)

X_RATE_LIMIT = LimitHeaders(
    limit=("x-rate-limit-limit", "x-rate-limit"),
    remaining="x-rate-limit-remaining",
    used="x-rate-limit-used",
    reset=("x-rate-limit-reset", "x-rate-limit-reset-at"),
)

RATE_LIMIT = LimitHeaders(limit="rate-limit-limit", remaining="rate-limit-remaining", reset="rate-limit-reset")

OF_A_VENDOR = tuple(
    LimitHeaders(
        name="{name}",
        limit=f"x-{{name}}-{word}-limit",
        remaining=f"x-{{name}}-{word}-remaining",
        used=f"x-{{name}}-{word}-used",
        reset=f"x-{{name}}-{word}-reset",
    )
    for word in ("ratelimit", "rate-limit")
)
"""For example ``X-Toast-RateLimit-Remaining``."""

OF_SEVERAL_NAMES = tuple(
    LimitHeaders(
        name="{name}",
        limit=f"x-{word}-limit-{{name}}",
        remaining=f"x-{word}-remaining-{{name}}",
        reset=f"x-{word}-reset-{{name}}",
    )
    for word in ("ratelimit", "rate-limit")
)
"""For example ``X-RateLimit-Remaining-Minute``, as API gateways send it."""

ietf = Profile(
    name="ietf",
    source="https://datatracker.ietf.org/doc/draft-ietf-httpapi-ratelimit-headers/",
    limits=(DRAFTS_00_TO_06,),
    refusals=PROBLEMS,
    scopes=VIOLATED,
)

GENERIC = (DRAFTS_00_TO_06, X_RATELIMIT, X_RATE_LIMIT, RATE_LIMIT, *OF_A_VENDOR, *OF_SEVERAL_NAMES)
