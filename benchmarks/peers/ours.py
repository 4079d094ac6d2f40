"""This project's middleware, with all its headers."""

from __future__ import annotations

from starlette.middleware import Middleware
from starlette.types import ASGIApp

from asgi_ratelimit import MemoryStore, RateLimitMiddleware, RedisStore

from ..apps.starlette_app import starlette_app
from ..subject import Quota, Where

PATIENT = 5.0
"""Seconds for a take; after them the answer is 503, because a fall-back to memory would falsify the figures."""


def store_at(where: Where, url: str) -> MemoryStore | RedisStore:
    return RedisStore(url, timeout=PATIENT, on_error="deny") if where == "redis" else MemoryStore()


def build(where: Where, url: str, quota: Quota) -> ASGIApp:
    return starlette_app(Middleware(RateLimitMiddleware, str(quota), store=store_at(where, url)))
