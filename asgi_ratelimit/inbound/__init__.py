"""Incoming requests: which rules apply, how much a request is charged, and how a refused one is answered."""

from __future__ import annotations

from ..headers import HeaderOptions
from .dependency import RateLimit
from .limits import Limits, RateLimited, limits
from .middleware import RateLimitMiddleware
from .penalties.blocks import Blocks
from .penalties.penalty import Penalty
from .refusals import limited_responses
from .rules import Rule
from .startup.app_stores import app_stores

__all__ = [
    "Blocks",
    "HeaderOptions",
    "Limits",
    "Penalty",
    "RateLimit",
    "RateLimitMiddleware",
    "RateLimited",
    "Rule",
    "app_stores",
    "limited_responses",
    "limits",
]
