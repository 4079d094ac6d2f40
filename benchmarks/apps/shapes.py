"""The shapes of use: the same app under each of them, limited by ours and by the peers that can do the same.

Clients send nothing that differs but their address. The user agent stands for what tells a tier, and the address for
a user's name.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from starlette.authentication import SimpleUser
from starlette.middleware import Middleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ..subject import OPEN, PEERS, Quota, Where
from .starlette_app import hello, refuse, starlette_app

A_MINUTE, AN_HOUR, A_DAY = 1000, 10_000, 100_000
"""So wide that no request is refused, and so narrow that a known client's bucket is not full again."""
MINUTE, HOUR, DAY = f"{A_MINUTE}/minute", f"{AN_HOUR}/hour", f"{A_DAY}/day"
TIERS = {"free": "100/hour", "bench": HOUR}

_ON_STARLETTE = ("bare", "ours", "limits", "slowapi")
SHAPES = {
    "single": (*_ON_STARLETTE, "asgi_ratelimit_peer", "plain"),
    "default+rule": (*_ON_STARLETTE, "plain"),
    "three quotas": (*_ON_STARLETTE, "asgi_ratelimit_peer"),
    "tier": (*_ON_STARLETTE, "asgi_ratelimit_peer"),
    "cost": _ON_STARLETTE,
    "settle": ("bare", "ours"),
    "user key": (*_ON_STARLETTE, "asgi_ratelimit_peer"),
    "dependency": ("bare_fastapi", "ours_fastapi", "fastapi_limiter"),
    "Limiter.rate_limit": ("bare", "ours", "limits", "pyrate_limiter"),
    "@pace at once": ("bare", "ours", "pyrate_limiter"),
}
"""The peers of each shape; the first is the bare app."""
CHARGES = {"default+rule": 2, "three quotas": 3}

Ask: TypeAlias = Callable[[Scope], Awaitable[Any]]
"""Asks a limiter about a request; a false answer refuses it."""


def build(peer: str, shape: str, where: Where, url: str) -> ASGIApp:
    """Build the app of a shape, limited by one of its peers. Raises what the peer raises."""
    app: ASGIApp = _BUILDERS[peer](shape, where, url)
    return Authenticated(app) if shape == "user key" else app


class Authenticated:
    """Puts a user into the scope, as an authentication outside the limit does."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope["user"] = SimpleUser(scope["client"][0])
        await self.app(scope, receive, send)


class Asking:
    """Asks before it delegates: a middleware for limiters without one."""

    def __init__(self, app: ASGIApp, ask: Ask) -> None:
        self.app = app
        self.ask = ask

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not await self.ask(scope):
            await refuse(scope, receive, send)
        else:
            await self.app(scope, receive, send)


def tier_of(request: HTTPConnection) -> str:
    return TIERS[request.headers["user-agent"]]


def cost_of(request: Request) -> int:
    return 2 if request.method == "GET" else 5


async def nothing(connection: HTTPConnection, response: Response) -> None:
    """A dependency that does nothing: calling one is FastAPI's cost, and no limiter's."""


def _bare(shape: str, where: Where, url: str) -> ASGIApp:
    return starlette_app()


def _bare_fastapi(shape: str, where: Where, url: str) -> ASGIApp:
    from fastapi import Depends

    from .fastapi_app import fastapi_app

    return fastapi_app([Depends(nothing)])


def _ours(shape: str, where: Where, url: str) -> ASGIApp:
    from asgi_ratelimit import Limiter, RateLimitMiddleware, Rule, pace
    from asgi_ratelimit.keys import user

    from ..peers.ours import store_at

    store = store_at(where, url)
    options: dict[str, dict[str, Any]] = {
        "single": {"quota": HOUR},
        "default+rule": {"quota": HOUR, "rules": [Rule("/", MINUTE)]},
        "three quotas": {"quota": f"{MINUTE}; {HOUR}; {DAY}"},
        "tier": {"quota": tier_of},
        "cost": {"quota": HOUR, "cost": cost_of},
        "settle": {"rules": [Rule("/", HOUR, cost=2, settle=lambda status, headers: 1)]},
        "user key": {"quota": HOUR, "key": user()},
    }
    if shape in options:
        return starlette_app(Middleware(RateLimitMiddleware, store=store, **options[shape]))
    limiter = Limiter(HOUR, store=store)

    @pace(f"{HOUR} burst {AN_HOUR}", key=lambda client: client, store=store, name="paced")
    async def paced(client: str) -> bool:
        return True

    ask = paced if shape == "@pace at once" else limiter.rate_limit
    return starlette_app(Middleware(Asking, ask=lambda scope: ask(scope["client"][0])))


def _ours_fastapi(shape: str, where: Where, url: str) -> ASGIApp:
    from fastapi import Depends

    from asgi_ratelimit import RateLimit

    from ..peers.ours import store_at
    from .fastapi_app import fastapi_app

    return fastapi_app([Depends(RateLimit(HOUR, store=store_at(where, url)))])


def _limits(shape: str, where: Where, url: str) -> ASGIApp:
    """As many calls as there are quotas."""
    from limits import parse

    from ..peers.limits import limiter_at

    hit = limiter_at(where, url).hit
    minute, hour, day = map(parse, (MINUTE, HOUR, DAY))
    tiers = {tier: parse(quota) for tier, quota in TIERS.items()}

    async def twice(scope: Scope) -> bool:
        client = scope["client"][0]
        return await hit(hour, client) and await hit(minute, client)

    async def three_times(scope: Scope) -> bool:
        client = scope["client"][0]
        return await hit(minute, client) and await hit(hour, client) and await hit(day, client)

    asks: dict[str, Ask] = {
        "default+rule": twice,
        "three quotas": three_times,
        "tier": lambda scope: hit(tiers[Request(scope).headers["user-agent"]], scope["client"][0]),
        "cost": lambda scope: hit(hour, scope["client"][0], cost=cost_of(Request(scope))),
        "user key": lambda scope: hit(hour, scope["user"].identity),
    }
    return starlette_app(Middleware(Asking, ask=asks.get(shape, lambda scope: hit(hour, scope["client"][0]))))


def _slowapi(shape: str, where: Where, url: str) -> ASGIApp:
    """Its default limit, and its decorator where a route has a limit or a function of its own."""
    from slowapi import Limiter
    from slowapi.middleware import SlowAPIASGIMiddleware
    from slowapi.util import get_remote_address

    key = get_remote_address if shape != "user key" else lambda request: request.scope["user"].identity
    default: list[Any] = {"three quotas": [f"{MINUTE};{HOUR};{DAY}"], "tier": [], "cost": []}.get(shape, [HOUR])
    uri = url if where == "redis" else "memory://"
    limiter = Limiter(key, default_limits=default, headers_enabled=True, storage_uri=uri)
    limited: dict[str, Callable[..., Any]] = {
        "default+rule": limiter.limit(MINUTE, override_defaults=False),
        "tier": limiter.limit(lambda key: TIERS["bench" if key else "free"]),  # such a function gets the key only
        "cost": limiter.limit(HOUR, cost=cost_of),
    }
    app = starlette_app(
        Middleware(SlowAPIASGIMiddleware), endpoint=limited[shape](hello) if shape in limited else hello
    )
    app.state.limiter = limiter
    return app


def _asgi_ratelimit(shape: str, where: Where, url: str) -> ASGIApp:
    from ratelimit import RateLimitMiddleware, Rule

    from ..peers.asgi_ratelimit_peer import backend_at

    async def client(scope: Scope) -> tuple[str, str]:
        return scope["client"][0], "default"

    async def user(scope: Scope) -> tuple[str, str]:
        return scope["user"].identity, "default"

    async def tier(scope: Scope) -> tuple[str, str]:
        return scope["client"][0], Request(scope).headers["user-agent"]

    rules = {
        "three quotas": [Rule(minute=A_MINUTE, hour=AN_HOUR, day=A_DAY)],
        "tier": [Rule(group="free", hour=100), Rule(group="bench", hour=AN_HOUR)],
    }
    who = {"tier": tier, "user key": user}.get(shape, client)
    config = {"/": rules.get(shape, [Rule(hour=AN_HOUR)])}
    return starlette_app(
        Middleware(RateLimitMiddleware, authenticate=who, backend=backend_at(where, url), config=config)
    )


def _fastapi_limiter(shape: str, where: Where, url: str) -> ASGIApp:
    return PEERS["fastapi_limiter"].build(where, url, OPEN)  # one bucket for all clients


def _pyrate_limiter(shape: str, where: Where, url: str) -> ASGIApp:
    from ..peers.pyrate_limiter import limiter_at

    blocking, acquire = shape == "@pace at once", limiter_at(where, url, Quota(AN_HOUR, "hour")).try_acquire_async
    return starlette_app(Middleware(Asking, ask=lambda scope: acquire(scope["client"][0], blocking=blocking)))


def _plain(shape: str, where: Where, url: str) -> ASGIApp:
    """One call of EVALSHA after the other, for each charge."""
    from ..peers.plain import script_at

    take = script_at(url)
    quotas = [("hour", AN_HOUR, 3600), ("minute", A_MINUTE, 60)][: CHARGES.get(shape, 1)]

    async def ask(scope: Scope) -> bool:
        for name, limit, period in quotas:
            if not await take([f"{name}:{scope['client'][0]}"], [limit, period, time.time()]):
                return False
        return True

    return starlette_app(Middleware(Asking, ask=ask))


_BUILDERS: dict[str, Callable[[str, Where, str], ASGIApp]] = {
    "bare": _bare,
    "bare_fastapi": _bare_fastapi,
    "ours": _ours,
    "ours_fastapi": _ours_fastapi,
    "plain": _plain,
    "asgi_ratelimit_peer": _asgi_ratelimit,
    "fastapi_limiter": _fastapi_limiter,
    "limits": _limits,
    "pyrate_limiter": _pyrate_limiter,
    "slowapi": _slowapi,
}
