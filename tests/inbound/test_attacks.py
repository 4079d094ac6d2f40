"""The corpus of attacks: whatever a client sends, no more of its requests pass than the limit admits, on both stores.

Add a row for each new idea to get past a limit: the options of a middleware, the requests, and how many of them pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from anyio import lowlevel
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from asgi_ratelimit import RateLimitMiddleware, Rule, TokenBucket, client_ip
from asgi_ratelimit.keys import combine, cookie, first_of, header, path_param
from asgi_ratelimit.stores import Store
from tests.support.asgi import ask, http, ok

pytestmark = pytest.mark.anyio


class Attack(NamedTuple):
    """What a client tries, and how many of its requests pass."""

    about: str
    options: dict[str, Any]
    requests: list[Scope]
    passes: int = 1


def rule(path: str, quota: Any = "1/day", **options: Any) -> dict[str, Any]:
    """The options of a middleware with one rule."""
    return {"rules": [Rule(path, quota, **options)]}


def beside(path: str, quota: Any, **options: Any) -> dict[str, Any]:
    """The same beside a quota for all requests."""
    return {"quota": "1/day", **rule(path, quota, **options)}


def paths(*paths: str, **more: Any) -> list[Scope]:
    return [http(path, **more) for path in paths]


# Paths: apps read them in more ways than a router does


SPELLINGS = ["//login", "/./login", "/x/../login", "/../login", "login", "/login/", "/login//", "/login/."]
SPELLINGS += ["http://shop/login", "//x/..//login", "/login/x/..", "/login\n", "/login\n\n"]

OUTSIDE = ["/icons/../big.zip", "/icons/./../big.zip", "/icons//../big.zip"]


def attacks_by_path() -> Iterator[Attack]:
    for path in SPELLINGS:
        yield Attack("another spelling", rule("/login"), paths("/login", path))
        by_page = rule("/{page}", key=path_param("page"))
        yield Attack("another spelling of a key", by_page, paths("/login", path))
    for path in SPELLINGS[:-2]:
        yield Attack("another spelling is exempt", beside("/login", None), paths(path, path))
        yield Attack("another spelling is alone", beside("/login", "100/day", only=True), paths(path, path))
    for path in OUTSIDE:
        yield Attack("a way out of an exempt folder", beside("/icons/{name:path}", None), paths(path, path))
    for path in ("/api/\n", "/api/items/a\nb", "/api/items/\n/c", "/api", "/api/"):
        yield Attack("a character ends the path", rule("/api/{rest:path}"), paths("/api/a", path))
    long = "/files/" + "x" * 1000
    yield Attack("a long path", rule("/files/{name}"), paths("/files/a", long, long))
    roots = [http("/users", root_path=root) for root in ("", "/api")] + [http("/api/users", root_path="/api")]
    yield Attack("a root path", rule("/users"), roots)


# Methods: browsers ask first, and only that is free


ASKS = [(b"origin", b"https://shop.example"), (b"access-control-request-method", b"POST")]


def attacks_by_method() -> Iterator[Attack]:
    for method, other in (("GET", "HEAD"), ("POST", "post"), ("Get", "head")):
        both = [http(method=each) for each in (method.upper(), other)]
        yield Attack("another spelling of a method", rule("/", methods=[method]), both)
    by_rule = rule("/login", methods=["OPTIONS"])
    yield Attack("a preflight of another spelling", by_rule, paths("/login", "//login", method="OPTIONS", headers=ASKS))
    for request in (
        http(method="OPTIONS"),
        http(method="OPTIONS", headers=ASKS[:1]),
        http(method="GET", headers=ASKS),
        http(method="options", headers=ASKS),
        http(method="BREW"),
        http(method="X" * 1000),
    ):
        yield Attack("no preflight", {"quota": "1/day"}, [request, request])
        yield Attack("no preflight, by a rule", rule("/"), [request, request])


# Functions that a client can make fail


def breaks(connection: HTTPConnection) -> Any:
    raise LookupError("no such user")


async def breaks_later(connection: HTTPConnection) -> Any:
    await lowlevel.checkpoint()
    raise LookupError("no such user")


def returning(*values: Any) -> list[Any]:
    return [breaks, breaks_later, *[lambda connection, value=value: value for value in values]]


RESERVED = TokenBucket(5, name="penalty-block")


def attacks_by_failure() -> Iterator[Attack]:
    two = [http(), http()]
    for broken in returning("10/lightyear", 7, (), RESERVED):
        yield Attack("a quota fails", {"quota": broken}, two, 0)
        yield Attack("a quota fails", {"quota": broken, "on_error": "allow"}, two, 2)
        yield Attack("a quota of a rule fails", rule("/", broken), two, 0)
        yield Attack("a quota of a rule fails beside another", beside("/", broken), two)
        keyed = {**beside("/", broken, key=client_ip()), "key": header("x-key")}
        yield Attack("a quota of a rule fails, and the other has no key", keyed, two, 0)
        yield Attack("a quota that decides alone fails", beside("/", broken, only=True), two)
        yield Attack("a quota fails that denies", beside("/", broken, on_error="deny"), two, 0)
    for broken in returning(7.5, True):
        yield Attack("a key fails", {"quota": "1/day", "key": broken}, two)
        yield Attack("a key of a rule fails", rule("/", key=broken, on_error="allow"), two)
        yield Attack("a part of a key fails", {"quota": "1/day", "key": combine(client_ip(), broken)}, two)
    for cost in returning(-1, float("nan"), Decimal("nan"), None, False, "0", 1j):
        yield Attack("a cost fails", {"quota": "1/day", "cost": cost}, two)
        yield Attack("a cost of a rule fails", rule("/", "2/day", cost=cost, on_error="allow"), [*two, http()], 2)
    for cost in returning(1e300, float("inf"), 10**400, Decimal("Infinity"), 2.0**53)[2:]:
        for quota in ("10/minute", "10/minute fixed", "10/minute rolling"):
            yield Attack("a cost is too large", {"quota": quota, "cost": cost}, two, 0)


# Keys that a client makes up


def named(name: str, *values: str) -> list[Scope]:
    return [http(headers=[(name.encode(), value.encode())]) for value in values]


def attacks_by_key() -> Iterator[Attack]:
    limited = {"quota": "1/day"}
    yield Attack("a forged address", limited, named("x-forwarded-for", "1.1.1.1", "2.2.2.2"))
    behind = client_ip(trusted_proxies=["192.0.2.1"])
    forged = named("x-forwarded-for", "1.1.1.1, 203.0.113.9", "2.2.2.2, 203.0.113.9")
    yield Attack("a forged address before a proxy", {**limited, "key": behind}, forged)
    instead = {**rule("/", key=breaks), "key": first_of(header("x-key"), behind)}
    yield Attack("a key fails behind a proxy", instead, named("x-forwarded-for", *["203.0.113.9"] * 2))
    twice = named("cookie", "a=1; a=x", "a=2; a=x", "a=3; a=x")
    yield Attack("a cookie with two values", {**limited, "key": first_of(cookie("a"), client_ip())}, twice)
    yield Attack("invented keys beside an address", beside("/", "9/s", key=header("x-key")), named("x-key", *"abc"))


ATTACKS: Iterable[Attack] = [*attacks_by_path(), *attacks_by_method(), *attacks_by_failure(), *attacks_by_key()]


@pytest.mark.parametrize("attack", ATTACKS, ids=[f"{number}: {each.about}" for number, each in enumerate(ATTACKS)])
async def test_no_more_requests_pass_than_the_limit_admits(attack: Attack, store: Store) -> None:
    """Nor fewer."""
    app = RateLimitMiddleware(ok, store=store, **attack.options)
    statuses = [(await ask(app, {**request})).status for request in attack.requests]
    assert statuses.count(200) == attack.passes, statuses
    assert set(statuses) <= {200, 429, 503}


async def test_what_only_looks_like_it_is_charged_nothing(store: Store) -> None:
    """A path that no app takes for the one of the rule; and an exempt folder is exempt."""
    app = RateLimitMiddleware(ok, store=store, **rule("/login"))
    others = paths("/login", "/log", "/login2", "/x/login", "/login/x", "/Login", "/..login", "/log\nin")
    assert [(await ask(app, each)).status for each in others * 2] == [200] * 8 + [429] + [200] * 7
    app = RateLimitMiddleware(ok, store=store, **beside("/icons/{name:path}", None))
    inside = paths("/icons/a.svg", "/icons/a/b.svg", "/icons/", "/icons")
    assert [(await ask(app, each)).status for each in inside] == [200] * 4


# Apps that read paths by themselves


@pytest.mark.parametrize("limit", ["/dl/big.zip", "/dl/{name}", "/dl/{name:path}"])
@pytest.mark.parametrize("path", ["/dl/big.zip", "/dl//big.zip", "/dl/./big.zip", "/dl/x/../big.zip", "/dl/big.zip/"])
async def test_static_files_are_limited(tmp_path: Path, limit: str, path: str, store: Store) -> None:
    """They resolve dots and slashes by themselves."""
    (tmp_path / "big.zip").write_bytes(b"x")
    inside = Starlette(routes=[Mount("/dl", app=StaticFiles(directory=tmp_path))])
    app = RateLimitMiddleware(inside, store=store, **rule(limit))
    answers = [(await ask(app, http(path))).status for _ in range(3)]
    assert answers.count(200) <= 1
    assert answers[1:] == [429, 429]


@pytest.mark.parametrize(("mount", "route"), [("/{lang}", "/account/login"), ("/api", "/{version}/login")])
async def test_no_endpoint_is_reached_past_its_rule(mount: str, route: str, store: Store) -> None:
    """Without the middleware, Starlette's mounts reach it by a newline, under a path that the rule does not match."""
    inside = Starlette(routes=[Mount(mount, routes=[Route(route, PlainTextResponse("fine"))])])
    path = f"{mount}{route}".replace("/{lang}", "").replace("/{version}", "")
    assert (await ask(inside, http(path + "\n"))).status == 200
    app = RateLimitMiddleware(inside, store=store, **rule(mount + route))
    assert [(await ask(app, http(path + end))).status for end in ("\n", "\n\n", "\n")] == [404] * 3


@pytest.mark.parametrize("limit", ["/login/{account}", "/api/login/{account}"])
@pytest.mark.parametrize("key", [None, path_param("account"), combine(path_param("account"))])
async def test_an_app_that_sets_its_root_path(limit: str, key: Any, store: Store) -> None:
    """It serves a path with it and without; whichever the rule names, both are one bucket, and both are exempt."""
    inside = FastAPI()
    inside.root_path = "/api"  # the newest FastAPI warns of the parameter
    inside.add_api_route("/login/{account}", lambda account: account, methods=["GET"])
    rules = [Rule(limit, "2/day", key=key), Rule("/health", None)]
    app = RateLimitMiddleware(inside, "5/day", rules=rules, store=store)
    requests = [http("/api/login/ann"), http("/login/ann"), http("/api/login/ann", root_path="/api")]
    assert [(await ask(app, each)).status for each in requests] == [200, 200, 429]
    assert [(await ask(app, http(path))).headers.get("ratelimit") for path in ("/health", "/api/health")] == [None] * 2
    assert (await ask(app, http("/apilogin/ann"))).status == 404
