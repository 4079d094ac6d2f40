"""Profiles: what the answers of an API mean, as data.

``auto`` recognises most APIs by their headers; a declared profile knows more. ``Profile(...)`` describes another one.
"""

from .apis import (
    PROFILES,
    anthropic,
    auto,
    azure,
    confluence,
    discord,
    github,
    gitlab,
    groq,
    hubspot,
    ietf,
    jira,
    named,
    notion,
    openai,
    reddit,
    shopify,
    slack,
    stripe,
    x,
    zendesk,
)
from .definitions import STANDARD_REFUSALS, Ban, LimitHeaders, Profile, Refusal
from .routes import Routes

__all__ = [
    "PROFILES",
    "STANDARD_REFUSALS",
    "Ban",
    "LimitHeaders",
    "Profile",
    "Refusal",
    "Routes",
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
