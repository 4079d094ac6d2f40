"""Profiles: what the answers of an API mean, as data, and how much they say a request has used.

``auto`` recognises most APIs by their headers; a declared profile knows more. ``Profile(...)`` describes another one.
``aimd`` makes a profile that searches for a rate that no answer reports.
For ``cost`` and ``settle``, there are estimates of requests, which can learn, and the usage of answers.
"""

from .businesses import azure, confluence, hubspot, jira, shopify, stripe, zendesk
from .costs import LearnedEstimate, anthropic_estimate, anthropic_usage, model, openai_estimate, openai_usage
from .definitions import STANDARD_REFUSALS, Ban, HiddenRate, LimitHeaders, Profile, Refusal, Routes
from .platforms import anthropic, discord, github, gitlab, groq, notion, openai, reddit, slack, x
from .registry import PROFILES, aimd, auto, ietf, named

__all__ = [
    "PROFILES",
    "STANDARD_REFUSALS",
    "Ban",
    "HiddenRate",
    "LearnedEstimate",
    "LimitHeaders",
    "Profile",
    "Refusal",
    "Routes",
    "aimd",
    "anthropic",
    "anthropic_estimate",
    "anthropic_usage",
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
    "model",
    "named",
    "notion",
    "openai",
    "openai_estimate",
    "openai_usage",
    "reddit",
    "shopify",
    "slack",
    "stripe",
    "x",
    "zendesk",
]
