"""Incoming requests: which rules apply, how much a request is charged, and how a refused one is answered."""

from __future__ import annotations

from .app_stores import app_stores
from .dependency import RateLimit
from .limits import Limits, limits
from .middleware import RateLimitMiddleware
from .penalties import Blocks, Penalty
from .refusals import RateLimited
from .responses.header_options import HeaderOptions
from .responses.openapi import limited_responses
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
