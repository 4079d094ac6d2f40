"""No limiter: the bare app in FastAPI, for limiters that work with FastAPI only."""

from __future__ import annotations

from starlette.types import ASGIApp

from ..apps.fastapi_app import fastapi_app
from ..subject import Quota, Where


def build(where: Where, url: str, quota: Quota) -> ASGIApp:
    return fastapi_app()
