"""No limiter: the bare app in Starlette."""

from __future__ import annotations

from starlette.types import ASGIApp

from ..apps.starlette_app import starlette_app
from ..subject import Quota, Where


def build(where: Where, url: str, quota: Quota) -> ASGIApp:
    return starlette_app()
