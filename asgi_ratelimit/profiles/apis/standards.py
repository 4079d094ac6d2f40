"""Headers by standard or by habit, whichever API sends them.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

from ..definitions import STANDARD_REFUSALS, LimitHeaders, Profile, Refusal, alike

VIOLATED = "body:violated-policies.*"
"""The names of the violated policies, in problem details (RFC 9457) of the type ``quota-exceeded``."""

PROBLEMS = (
    Refusal((503,), (("body:type", "*temporary-reduced-capacity"),), scope="temporary-reduced-capacity"),
    Refusal((429,), (("body:type", "*abnormal-usage-detected"),), scope="abnormal-usage-detected"),
    *STANDARD_REFUSALS,
)
"""The problem types of the draft; the third type, ``quota-exceeded``, is what any 429 is about."""

DRAFTS_00_TO_07 = LimitHeaders(
    limit=("ratelimit-limit", "ratelimit#limit"),
    remaining=("ratelimit-remaining", "ratelimit#remaining"),
    reset=("ratelimit-reset", "ratelimit#reset"),
    policies=("ratelimit-policy", "ratelimit-limit"),
)
"""Draft 07 has one header, ``limit=100, remaining=50, reset=5``. A time since 1970 in ``RateLimit-Reset``, as GitLab
sends it, is recognised by its size."""

X_RATELIMIT = alike(
    "x-ratelimit-*",
    "limit remaining used",
    reset=("x-ratelimit-reset-after", "x-ratelimit-reset", "x-ratelimit-reset-at"),
    policies="x-ratelimit-limit",
)

X_RATE_LIMIT = alike(
    "x-rate-limit-*",
    "remaining used",
    limit=("x-rate-limit-limit", "x-rate-limit"),
    reset=("x-rate-limit-reset", "x-rate-limit-reset-at"),
)

OF_A_VENDOR = (
    alike("x-{name}-ratelimit-*", "limit remaining used reset", name="{name}"),
    alike("x-{name}-rate-limit-*", "limit remaining used reset", name="{name}"),
)
"""For example ``X-Toast-RateLimit-Remaining``."""

OF_SEVERAL_NAMES = (alike("x-ratelimit-*-{name}", name="{name}"), alike("x-rate-limit-*-{name}", name="{name}"))
"""For example ``X-RateLimit-Remaining-Minute``, as API gateways send it."""

GENERIC = (DRAFTS_00_TO_07, X_RATELIMIT, X_RATE_LIMIT, alike("rate-limit-*"), *OF_A_VENDOR, *OF_SEVERAL_NAMES)

ietf = Profile(
    name="ietf",
    source="https://datatracker.ietf.org/doc/draft-ietf-httpapi-ratelimit-headers/",
    limits=(DRAFTS_00_TO_07,),
    refusals=PROBLEMS,
    scopes=VIOLATED,
)
