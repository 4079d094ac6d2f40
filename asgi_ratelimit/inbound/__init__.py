"""Requests that come in: what they are keyed by, which rules apply, and what a refused one is told."""

from __future__ import annotations

from .blocks import Blocks
from .coverage import Covered, coverage
from .dependency import RateLimit, limited_responses
from .header_options import HeaderOptions
from .keys import client_ip, combine, cookie, first_of, header, path_param, state, user
from .limits import Limits, limits
from .middleware import RateLimitMiddleware
from .penalties import Penalty
from .refused import RateLimited
from .rules import Rule

__all__ = [
    "Blocks",
    "Covered",
    "HeaderOptions",
    "Limits",
    "Penalty",
    "RateLimit",
    "RateLimitMiddleware",
    "RateLimited",
    "Rule",
    "client_ip",
    "combine",
    "cookie",
    "coverage",
    "first_of",
    "header",
    "limited_responses",
    "limits",
    "path_param",
    "state",
    "user",
]
