"""Incoming requests: which rules apply, how much a request is charged, and how a refused one is answered."""

from __future__ import annotations

from ..headers.header_rendering import HeaderOptions
from .dependency import RateLimit, app_stores
from .limits import Limits, RateLimited, limits
from .middleware import RateLimitMiddleware
from .penalties import Blocks, Penalty
from .refusals import limited_responses
from .rules import Rule

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
