"""An app behind fastapi-limiter, beside its port."""

from __future__ import annotations

from typing import Any

from fastapi import Depends, FastAPI
from fastapi_limiter.depends import RateLimiter
from pyrate_limiter import Duration, Limiter, Rate

from asgi_ratelimit import RateLimit, RateLimitMiddleware, Store


def app_with(**dependencies: list[Any]) -> FastAPI:
    """An app with routes that have these dependencies."""
    app = FastAPI()
    for name, limits in dependencies.items():
        app.add_api_route(f"/{name}", lambda: "fine", dependencies=[Depends(each) for each in limits], name=name)
    return app


def news_with_fastapi_limiter() -> FastAPI:
    """A limit on one route, two on another, and one with an identifier."""

    async def by_user(request: Any) -> str:
        return str(request.headers.get("x-user"))

    def limit(count: int, duration: Any, **options: Any) -> Any:
        return RateLimiter(limiter=Limiter(Rate(count, duration)), **options)

    return app_with(
        latest=[limit(2, Duration.MINUTE)],
        archive=[limit(3, Duration.MINUTE), limit(2, Duration.HOUR)],
        comments=[limit(2, Duration.MINUTE, identifier=by_user)],
    )


def everybody(connection: Any) -> str:
    """The key of pyrate-limiter's own bucket, whatever the identifier says."""
    return "all"


def news(store: Store) -> Any:
    """The same."""
    app = app_with(
        latest=[RateLimit("2/minute rolling", key=everybody)],
        archive=[RateLimit("3/minute rolling; 2/hour rolling", key=everybody)],
        comments=[RateLimit("2/minute rolling", key=everybody)],
    )
    return RateLimitMiddleware(app, store=store)
