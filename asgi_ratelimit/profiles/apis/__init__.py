"""One profile for each API, and ``auto``, which recognises them."""

from __future__ import annotations

from ...errors import ConfigurationError
from ..definitions import Profile
from .businesses import azure, confluence, hubspot, jira, shopify, stripe, zendesk
from .language_models import anthropic, groq, openai
from .platforms import discord, github, gitlab, notion, reddit, slack, x
from .standards import GENERIC, PROBLEMS, VIOLATED, ietf

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


__all__ = [
    "APIS",
    "PROFILES",
    "anthropic",
    "auto",
    "azure",
    "confluence",
    "discord",
    "github",
    "gitlab",
    "groq",
    "hubspot",
    "ietf",
    "jira",
    "named",
    "notion",
    "openai",
    "reddit",
    "shopify",
    "slack",
    "stripe",
    "x",
    "zendesk",
]
