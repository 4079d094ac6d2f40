"""fastapi-redis-sdk: its middleware with one limit for the whole app, for each client address."""

from __future__ import annotations

import os

from redis_fastapi import FastAPIRedis
from starlette.types import ASGIApp

from ..apps.fastapi_app import fastapi_app
from ..subject import Quota, Where


def build(where: Where, url: str, quota: Quota) -> ASGIApp:
    os.environ["REDIS_URL"] = url
    app = fastapi_app()
    FastAPIRedis(app).lifespan().rate_limiting(global_rate=str(quota), ietf_headers=True, fail_closed=True)
    return app
