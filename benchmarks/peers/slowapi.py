"""slowapi: its ASGI middleware with headers, a fixed window of limits; its Redis client is synchronous."""

from __future__ import annotations

from slowapi import Limiter
from slowapi.middleware import SlowAPIASGIMiddleware
from slowapi.util import get_remote_address
from starlette.middleware import Middleware
from starlette.types import ASGIApp

from ..apps.starlette_app import starlette_app
from ..subject import Quota, Where


def build(where: Where, url: str, quota: Quota) -> ASGIApp:
    app = starlette_app(Middleware(SlowAPIASGIMiddleware))
    app.state.limiter = Limiter(
        get_remote_address,
        default_limits=[str(quota)],
        headers_enabled=True,
        storage_uri=url if where == "redis" else "memory://",
    )
    return app
