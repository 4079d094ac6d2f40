"""This project's middleware, with all its headers."""

from __future__ import annotations

from starlette.middleware import Middleware
from starlette.types import ASGIApp

from asgi_ratelimit import MemoryStore, RateLimitMiddleware, RedisStore

from ..apps import starlette_app
from ..subject import Quota, Where

TITLE = "ours"
DISTRIBUTION = "asgi-ratelimit-pacer"
STORES: tuple[Where, ...] = ("memory", "redis")
BASE = "bare"
NOTE = ""

PATIENT = 5.0
"""Seconds that a take may last, and 503 after it: a fall-back to memory would be measured unseen."""


def build(where: Where, url: str, quota: Quota) -> ASGIApp:
    store = RedisStore(url, timeout=PATIENT, on_error="deny") if where == "redis" else MemoryStore()
    return starlette_app(Middleware(RateLimitMiddleware, str(quota), store=store))
