"""This project's middleware on FastAPI, for comparison with peers that work with FastAPI only."""

from __future__ import annotations

from starlette.middleware import Middleware
from starlette.types import ASGIApp

from asgi_ratelimit import RateLimitMiddleware

from ..apps.fastapi_app import fastapi_app
from ..subject import Quota, Where
from .ours import store_at


def build(where: Where, url: str, quota: Quota) -> ASGIApp:
    return fastapi_app(middleware=[Middleware(RateLimitMiddleware, str(quota), store=store_at(where, url))])
