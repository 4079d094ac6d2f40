"""All profiles by name: one for each API, ``auto``, which recognises them, and those that search for hidden limits."""

from __future__ import annotations

from dataclasses import replace

from ..errors import ConfigurationError
from .businesses import azure, confluence, hubspot, jira, shopify, stripe, zendesk
from .definitions import STANDARD_REFUSALS, HiddenRate, LimitHeaders, Profile, Refusal, alike
from .platforms import anthropic, discord, github, gitlab, groq, notion, openai, reddit, slack, x

# The names of the violated policies, in problem details (RFC 9457) of the type ``quota-exceeded``.
VIOLATED = "body:violated-policies.*"

# The problem types of the draft; the third type, ``quota-exceeded``, is what any 429 is about.
PROBLEMS = (
    Refusal((503,), (("body:type", "*temporary-reduced-capacity"),), scope="temporary-reduced-capacity"),
    Refusal((429,), (("body:type", "*abnormal-usage-detected"),), scope="abnormal-usage-detected"),
    *STANDARD_REFUSALS,
)

# Draft 07 has one header, ``limit=100, remaining=50, reset=5``. A time since 1970 in ``RateLimit-Reset``, as GitLab
# sends it, is recognised by its size.
DRAFTS_00_TO_07 = LimitHeaders(
    limit=("ratelimit-limit", "ratelimit#limit"),
    remaining=("ratelimit-remaining", "ratelimit#remaining"),
    reset=("ratelimit-reset", "ratelimit#reset"),
    policies=("ratelimit-policy", "ratelimit-limit"),
)

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

# For example ``X-Toast-RateLimit-Remaining``.
OF_A_VENDOR = alike("x-{name}-ratelimit-*", "limit remaining used reset", name="{name}")

# For example ``X-RateLimit-Remaining-Minute``, as API gateways send it.
OF_SEVERAL_NAMES = alike("x-ratelimit-*-{name}", name="{name}")

ietf = Profile(
    name="ietf",
    source="https://datatracker.ietf.org/doc/draft-ietf-httpapi-ratelimit-headers/",
    limits=(DRAFTS_00_TO_07,),
    refusals=PROBLEMS,
    scopes=VIOLATED,
)

APIS = (
    *(discord, github, gitlab, slack, reddit, x, notion),
    *(groq, openai, anthropic),  # Groq sends the headers of OpenAI, so it comes first
    *(shopify, stripe, hubspot, zendesk, jira, confluence, azure),
)

auto = Profile(
    name="auto",
    source="https://www.rfc-editor.org/rfc/rfc9110#field.retry-after",
    limits=(DRAFTS_00_TO_07, X_RATELIMIT, X_RATE_LIMIT, alike("rate-limit-*"), OF_A_VENDOR, OF_SEVERAL_NAMES),
    refusals=PROBLEMS,
    waits="body:error.details.*.retryDelay",  # as Google's APIs write it: "34s"
    scopes=VIOLATED,
    candidates=tuple(each for each in APIS if each.signs),
)

PROFILES = {profile.name: profile for profile in (auto, ietf, *APIS)}
"""By name."""


def named(profile: Profile | str) -> Profile:
    """The profile itself, or the one with this name; ``ConfigurationError`` if there is none."""
    if isinstance(profile, Profile):
        return profile
    if not isinstance(profile, str) or profile not in PROFILES:
        names = ", ".join(PROFILES)
        raise ConfigurationError(f'a profile is a Profile or one of {names}, not {profile!r}: profile="auto"')
    return PROFILES[profile]


def aimd(floor: float, ceiling: float, *, start: float | None = None, profile: Profile | str = "auto") -> Profile:
    """For an API that refuses above a rate that it does not report: a ``profile`` that searches for it.

    ``AdaptiveTransport`` then spaces the requests to each host evenly. The rate is from ``floor`` to ``ceiling``
    requests a second, and begins at ``start``, by default at the floor. It rises until a request is refused, then falls
    by a part, and rises more and more slowly to the refused rate (additive increase, multiplicative decrease). Limits
    that answers report, as ``profile`` reads them, count as well. Raises ``ConfigurationError``.
    """
    return replace(named(profile), hidden_rate=HiddenRate(floor, ceiling, start))
