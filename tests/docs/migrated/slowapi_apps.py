"""Two apps behind slowapi, each beside its port."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request
from slowapi import Limiter
from slowapi.middleware import SlowAPIMiddleware
from slowapi.util import get_remote_address

from asgi_ratelimit import RateLimitMiddleware, Rule, Store, client_ip
from asgi_ratelimit.keys import combine


def path(connection: Any) -> str:
    return str(connection.url.path)


def with_routes(*paths: str, **decorators: Any) -> FastAPI:
    """An app with these routes; a decorator for one of them is given by the name of its endpoint."""
    app = FastAPI()
    for each in paths:

        async def endpoint(request: Request) -> str:
            return "fine"

        endpoint.__name__ = each.split("/")[1]
        decorate = decorators.get(endpoint.__name__, lambda function: function)
        app.add_api_route(each, decorate(endpoint), methods=["GET", "POST"])
    return app


SHOP = ["/home", "/items/{id}", "/login", "/search", "/export", "/upload", "/health"]


def shop_with_slowapi() -> FastAPI:
    """Defaults for each URL, limits in place of them and beside them, a shared one, and an exemption."""
    limiter = Limiter(key_func=get_remote_address, default_limits=["3/minute"])
    shared = limiter.shared_limit("2/minute", scope="transfers")
    app = with_routes(
        *SHOP,
        login=limiter.limit("2/minute"),
        search=limiter.limit("5/minute", override_defaults=False),
        export=shared,
        upload=shared,
        health=limiter.exempt,
    )
    app.state.limiter = limiter
    app.add_middleware(SlowAPIMiddleware)
    return app


def shop(store: Store) -> Any:
    """The same."""
    return RateLimitMiddleware(
        with_routes(*SHOP),
        "3/minute fixed",
        key=combine(client_ip(), path),
        rules=[
            Rule("/login", "2/minute fixed", only=True),
            Rule("/search", "5/minute fixed"),
            Rule("/export", "2/minute fixed", name="transfers", key=client_ip(), only=True),
            Rule("/upload", "2/minute fixed", name="transfers", key=client_ip(), only=True),
            Rule("/health", None),
        ],
        store=store,
    )


OFFICE = ["/items/{id}", "/other", "/report", "/data", "/read", "/staff", "/tiers"]


def office_with_slowapi() -> FastAPI:
    """Defaults for each endpoint, one limit for all of the app, several on one route, and some by method."""
    limiter = Limiter(
        get_remote_address, default_limits=["3/minute"], application_limits=["5/minute"], key_style="endpoint"
    )
    first, second = limiter.limit("4/minute"), limiter.limit("2/hour")
    app = with_routes(
        *OFFICE,
        report=lambda endpoint: first(second(endpoint)),
        data=limiter.limit("2/minute", per_method=True),
        read=limiter.limit("2/minute", methods=["GET"]),
        staff=limiter.limit("2/minute", exempt_when=lambda request: request.headers.get("x-staff") == "yes"),
        tiers=limiter.limit(lambda: "2/minute"),
    )
    app.state.limiter = limiter
    app.add_middleware(SlowAPIMiddleware)
    return app


def tier(connection: Any) -> str:
    return "2/minute fixed"


def unless_staff(connection: Any) -> str | None:
    return None if connection.headers.get("x-staff") == "yes" else "2/minute fixed"


def office(store: Store) -> Any:
    """The same."""
    return RateLimitMiddleware(
        with_routes(*OFFICE),
        "5/minute fixed",
        rules=[
            Rule("/items/{id}", "3/minute fixed"),
            Rule("/other", "3/minute fixed"),
            Rule("/report", "4/minute fixed; 2/hour fixed", only=True),
            Rule("/data", "2/minute fixed", methods=["GET"], only=True),
            Rule("/data", "2/minute fixed", methods=["POST"], only=True),
            Rule("/read", "2/minute fixed", methods=["GET"], only=True),
            Rule("/read", None),
            Rule("/staff", unless_staff, only=True),
            Rule("/tiers", "3/minute fixed", name="default of tiers"),
            Rule("/tiers", tier),
        ],
        store=store,
    )
