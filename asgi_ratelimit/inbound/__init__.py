"""Requests that come in: what they are keyed by, which rules apply, and what a refused one is told."""

from __future__ import annotations

from .keys import client_ip, combine, cookie, first_of, header, path_param, state, user
from .middleware import RateLimitMiddleware
from .rules import Rule

__all__ = [
    "RateLimitMiddleware",
    "Rule",
    "client_ip",
    "combine",
    "cookie",
    "first_of",
    "header",
    "path_param",
    "state",
    "user",
]
