"""The shapes of use: the same app under each of them, limited by ours and by the peers that can do the same.

Clients send nothing that differs but their address. The user agent stands for what tells a tier, and the address for
a user's name.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from starlette.authentication import SimpleUser
from starlette.middleware import Middleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ..subject import OPEN, Quota, Where
from .starlette_app import hello, refuse, starlette_app

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


@dataclass(frozen=True, slots=True)
class Case:
    """A shape over a store. Each client has ``a_minute`` units a minute, 10 times that an hour, and 100 times a day."""

    shape: str
    where: Where
    url: str
    a_minute: int

    @property
    def an_hour(self) -> int:
        return 10 * self.a_minute

    @property
    def a_day(self) -> int:
        return 100 * self.a_minute

    @property
    def minute(self) -> str:
        return f"{self.a_minute}/minute"

    @property
    def hour(self) -> str:
        return f"{self.an_hour}/hour"

    @property
    def day(self) -> str:
        return f"{self.a_day}/day"

    @property
    def tiers(self) -> dict[str, str]:
        """The quotas by user agent."""
        return {"free": "100/hour", "bench": self.hour}


def build(peer: str, case: Case) -> ASGIApp:
    """Build the app of a shape, limited by one of its peers. Raises what the peer raises."""
    app = _BUILDERS[peer](case)
    return Authenticated(app) if case.shape == "user key" else app


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


def cost_of(request: Request) -> int:
    return 2 if request.method == "GET" else 5


async def nothing(connection: HTTPConnection, response: Response) -> None:
    """A dependency that does nothing: calling one is FastAPI's cost, and no limiter's."""


def _bare(case: Case) -> ASGIApp:
    return starlette_app()


def _bare_fastapi(case: Case) -> ASGIApp:
    from fastapi import Depends

    from .fastapi_app import fastapi_app, greeting

    return fastapi_app([Depends(nothing)], greeting)


def _ours(case: Case) -> ASGIApp:
    from asgi_ratelimit import Limiter, RateLimitMiddleware, Rule, pace
    from asgi_ratelimit.keys import user

    from ..peers.ours import store_at

    store, tiers = store_at(case.where, case.url), case.tiers
    options: dict[str, dict[str, Any]] = {
        "single": {"quota": case.hour},
        "default+rule": {"quota": case.hour, "rules": [Rule("/", case.minute)]},
        "three quotas": {"quota": f"{case.minute}; {case.hour}; {case.day}"},
        "tier": {"quota": lambda request: tiers[request.headers["user-agent"]]},
        "cost": {"quota": case.hour, "cost": cost_of},
        "settle": {"rules": [Rule("/", case.hour, cost=2, settle=lambda status, headers: 1)]},
        "user key": {"quota": case.hour, "key": user()},
    }
    if case.shape in options:
        return starlette_app(Middleware(RateLimitMiddleware, store=store, **options[case.shape]))
    limiter = Limiter(case.hour, store=store)

    @pace(f"{case.hour} burst {case.an_hour}", key=lambda client: client, store=store, name="paced")
    async def paced(client: str) -> bool:
        return True

    ask = paced if case.shape == "@pace at once" else limiter.rate_limit
    return starlette_app(Middleware(Asking, ask=lambda scope: ask(scope["client"][0])))


def _ours_fastapi(case: Case) -> ASGIApp:
    from fastapi import Depends

    from asgi_ratelimit import RateLimit

    from ..peers.ours import store_at
    from .fastapi_app import fastapi_app, greeting

    return fastapi_app([Depends(RateLimit(case.hour, store=store_at(case.where, case.url)))], greeting)


def _limits(case: Case) -> ASGIApp:
    """As many calls as there are quotas."""
    from limits import parse

    from ..peers.limits import limiter_at

    hit: Callable[..., Awaitable[bool]] = limiter_at(case.where, case.url).hit
    minute, hour, day = map(parse, (case.minute, case.hour, case.day))
    tiers = {tier: parse(quota) for tier, quota in case.tiers.items()}

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
    return starlette_app(Middleware(Asking, ask=asks.get(case.shape, lambda scope: hit(hour, scope["client"][0]))))


def _slowapi(case: Case) -> ASGIApp:
    """Its default limit, and its decorator where a route has a limit or a function of its own."""
    from slowapi import Limiter
    from slowapi.middleware import SlowAPIASGIMiddleware
    from slowapi.util import get_remote_address

    key = get_remote_address if case.shape != "user key" else lambda request: request.scope["user"].identity
    defaults: dict[str, list[Any]] = {"three quotas": [f"{case.minute};{case.hour};{case.day}"], "tier": []}
    default, tiers = defaults.get(case.shape, [case.hour]), case.tiers
    uri = case.url if case.where == "redis" else "memory://"
    limiter = Limiter(key, default_limits=default, headers_enabled=True, storage_uri=uri)
    limited: dict[str, Callable[..., Any]] = {
        "default+rule": limiter.limit(case.minute, override_defaults=False),
        "tier": limiter.limit(lambda key: tiers["bench" if key else "free"]),  # such a function gets the key only
        "cost": limiter.limit(case.hour, cost=cost_of),
    }
    endpoint = limited[case.shape](hello) if case.shape in limited else hello
    app = starlette_app(Middleware(SlowAPIASGIMiddleware), endpoint=endpoint)
    app.state.limiter = limiter
    return app


def _asgi_ratelimit(case: Case) -> ASGIApp:
    from ratelimit import RateLimitMiddleware, Rule

    from ..peers.asgi_ratelimit_peer import backend_at

    async def client(scope: Scope) -> tuple[str, str]:
        return scope["client"][0], "default"

    async def user(scope: Scope) -> tuple[str, str]:
        return scope["user"].identity, "default"

    async def tier(scope: Scope) -> tuple[str, str]:
        return scope["client"][0], Request(scope).headers["user-agent"]

    rules = {
        "three quotas": [Rule(minute=case.a_minute, hour=case.an_hour, day=case.a_day)],
        "tier": [Rule(group="free", hour=100), Rule(group="bench", hour=case.an_hour)],
    }
    who = {"tier": tier, "user key": user}.get(case.shape, client)
    config = {"/": rules.get(case.shape, [Rule(hour=case.an_hour)])}
    return starlette_app(
        Middleware(RateLimitMiddleware, authenticate=who, backend=backend_at(case.where, case.url), config=config)
    )


def _fastapi_limiter(case: Case) -> ASGIApp:
    from ..peers.fastapi_limiter import build
    from .fastapi_app import greeting

    return build(case.where, case.url, OPEN, endpoint=greeting)  # one bucket for all clients


def _pyrate_limiter(case: Case) -> ASGIApp:
    from ..peers.pyrate_limiter import limiter_at

    acquire = limiter_at(case.where, case.url, Quota(case.an_hour, "hour")).try_acquire_async
    blocking = case.shape == "@pace at once"
    return starlette_app(Middleware(Asking, ask=lambda scope: acquire(scope["client"][0], blocking=blocking)))


def _plain(case: Case) -> ASGIApp:
    """One call of EVALSHA after the other, for each charge."""
    from ..peers.plain import script_at

    take = script_at(case.url)
    quotas = [("hour", case.an_hour, 3600), ("minute", case.a_minute, 60)][: CHARGES.get(case.shape, 1)]

    async def ask(scope: Scope) -> bool:
        for name, limit, period in quotas:
            if not await take([f"{name}:{scope['client'][0]}"], [limit, period, time.time()]):
                return False
        return True

    return starlette_app(Middleware(Asking, ask=ask))


_BUILDERS: dict[str, Callable[[Case], ASGIApp]] = {
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
