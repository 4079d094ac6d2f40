"""This project's middleware without headers, because most peers send none."""

from __future__ import annotations

from starlette.middleware import Middleware
from starlette.types import ASGIApp

from asgi_ratelimit import RateLimitMiddleware

from ..apps.starlette_app import starlette_app
from ..subject import Quota, Where
from .ours import store_at


def build(where: Where, url: str, quota: Quota) -> ASGIApp:
    return starlette_app(Middleware(RateLimitMiddleware, str(quota), store=store_at(where, url), headers=None))
