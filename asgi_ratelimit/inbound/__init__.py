"""Requests that come in: what they are keyed by, which rules apply, and what a refused one is told."""

from __future__ import annotations

from .keys import client_ip, header
from .middleware import RateLimitMiddleware
from .rules import Rule

__all__ = ["RateLimitMiddleware", "Rule", "client_ip", "header"]
