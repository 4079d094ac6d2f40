"""No limiter, on FastAPI: the base of those that are made for it alone."""

from __future__ import annotations

from starlette.types import ASGIApp

from ..fastapi_apps import fastapi_app
from ..subject import Quota, Where


def build(where: Where, url: str, quota: Quota) -> ASGIApp:
    return fastapi_app()
