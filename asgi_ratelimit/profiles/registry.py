"""All profiles by name: one for each API, ``auto``, which recognises them, and those that search for hidden limits."""

from __future__ import annotations

from dataclasses import replace

from ..errors import ConfigurationError
from .apis.businesses import azure, confluence, hubspot, jira, shopify, stripe, zendesk
from .apis.language_models import anthropic, groq, openai
from .apis.platforms import discord, github, gitlab, notion, reddit, slack, x
from .apis.standards import GENERIC, PROBLEMS, VIOLATED, ietf
from .definitions import HiddenConcurrency, HiddenRate, Profile

APIS = (
    *(discord, github, gitlab, slack, reddit, x, notion),
    *(groq, openai, anthropic),  # Groq sends the headers of OpenAI, so it comes first
    *(shopify, stripe, hubspot, zendesk, jira, confluence, azure),
)

auto = Profile(
    name="auto",
    source="https://www.rfc-editor.org/rfc/rfc9110#field.retry-after",
    limits=GENERIC,
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
        raise ConfigurationError(
            f'a profile is a Profile or one of {", ".join(PROFILES)}, not {profile!r}: profile="auto"'
        )
    return PROFILES[profile]


def aimd(floor: float, ceiling: float, *, start: float | None = None, profile: Profile | str = "auto") -> Profile:
    """For an API that refuses above a rate that it does not report: a ``profile`` that searches for it.

    ``AdaptiveTransport`` then spaces the requests to each host evenly. The rate is from ``floor`` to ``ceiling``
    requests a second, and begins at ``start``, by default at the floor. It rises until a request is refused, then falls
    by a part, and rises more and more slowly to the refused rate (additive increase, multiplicative decrease). Limits
    that answers report, as ``profile`` reads them, count as well. Raises ``ConfigurationError``.
    """
    return replace(named(profile), hidden_rate=HiddenRate(floor, ceiling, start))


def gradient(floor: int, ceiling: int, *, start: int | None = None, profile: Profile | str = "auto") -> Profile:
    """For an API that slows down under too many requests at once: a ``profile`` that searches for the right number.

    ``AdaptiveTransport`` then has from ``floor`` to ``ceiling`` requests under way to each host, ``start`` at first,
    by default the floor. The number follows the gradient of latency: it rises as long as answers come as fast as with
    fewer requests, and falls when they are slower. Give ``aimd(...)`` as the ``profile`` to search for a rate as well.
    Raises ``ConfigurationError``.
    """
    return replace(named(profile), hidden_concurrency=HiddenConcurrency(floor, ceiling, start))
