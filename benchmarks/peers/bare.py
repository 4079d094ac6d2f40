"""No limiter: the app as it is, which is what the others add to."""

from __future__ import annotations

from starlette.types import ASGIApp

from ..apps import starlette_app
from ..subject import Quota, Where


def build(where: Where, url: str, quota: Quota) -> ASGIApp:
    return starlette_app()
