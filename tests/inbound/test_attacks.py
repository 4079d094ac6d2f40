"""The corpus of attacks: whatever a client sends, no more of its requests pass than the limit admits, on both stores.

Add a row for each new idea to get past a limit: the options of a middleware, the requests, how many of them pass, and,
if that matters, at how many awaits clients go, and how many keys a memory store has.
"""

from __future__ import annotations

import asyncio
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
from starlette.types import Receive, Scope, Send

from asgi_ratelimit import MemoryStore, Penalty, RateLimitMiddleware, Rule, Store, TokenBucket, client_ip
from asgi_ratelimit.keys import combine, cookie, first_of, header, path_param
from tests.support.asgi import ask, http, ok, websocket

pytestmark = pytest.mark.anyio


class Attack(NamedTuple):
    """What a client tries, and how many of its requests reach the app."""

    about: str
    options: dict[str, Any]
    requests: list[Scope]
    passes: int = 1
    goes: int = 0  # at how many awaits of the first request a client goes, one after another, before all of these
    max_keys: int = 100_000  # of the store, if it is memory


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
    yield Attack("a root path", rule("/users"), [*roots, http("//api/users", root_path="/api")])
    below = paths("//api/users", "//api/users", root_path="/api")
    yield Attack("a root path of another spelling is exempt", beside("/users", None), below)
    yield Attack("no path", rule("/"), paths("/", ""))
    yield Attack("no message of a socket", beside("/x", None, messages="9/s"), paths("/x", "/x"))


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
        without = [http(client=None), http(client=None)]
        yield Attack("a key fails without an address", {"quota": "1/day", "key": broken}, without)
        yield Attack("a key of a rule fails", rule("/", key=broken, on_error="allow"), two)
        yield Attack("a part of a key fails", {"quota": "1/day", "key": combine(client_ip(), broken)}, two)
    for cost in returning(-1, float("nan"), Decimal("nan"), None, False, "0", 1j):
        yield Attack("a cost fails", {"quota": "1/day", "cost": cost}, two)
        yield Attack("a cost of a rule fails", rule("/", "2/day", cost=cost, on_error="allow"), [*two, http()], 2)
    for cost in returning(1e300, float("inf"), 10**400, Decimal("Infinity"), 2.0**53)[2:]:
        for quota in ("10/minute", "10/minute fixed", "10/minute rolling"):
            yield Attack("a cost is too large", {"quota": quota, "cost": cost}, two, 0)


# Addresses, and forwarding headers


def clients(*addresses: str) -> list[Scope]:
    return [http(client=(address, port)) for port, address in enumerate(addresses)]


def named(name: str, *values: str) -> list[Scope]:
    return [http(headers=[(name.encode(), value.encode("latin-1"))]) for value in values]


LONG = "x" * 9000
ONE_CLIENT = [
    ("192.0.2.1", "::ffff:192.0.2.1", "64:ff9b::192.0.2.1", "2002:c000:201::7", "2001:0:102:304:8000:63bf:3fff:fdfe"),
    ("2001:db8::1", "2001:DB8::2:3", "2001:db8:0:0:4::%eth0"),
    ("testclient", "unknown", "010.0.0.1", "\n", "\udcff", LONG),
]
UNTRUSTED = ["x-forwarded-for", "x-real-ip", "cf-connecting-ip", "true-client-ip", "x-client-ip", "client-ip"]


def attacks_by_address() -> Iterator[Attack]:
    for addresses in ONE_CLIENT:
        yield Attack("another spelling of an address", {"quota": "1/day"}, clients(*addresses))
    for name in UNTRUSTED:
        yield Attack("a forged address", {"quota": "1/day"}, named(name, "1.1.1.1", "2.2.2.2"))
    behind = {"quota": "1/day", "key": client_ip(trusted_proxies=["192.0.2.1"])}
    others = [http(headers=[(other.encode(), b"1.1.1.1")]) for other in [*UNTRUSTED[1:], "forwarded"]]
    yield Attack("another header than the proxy's", behind, others)
    instead = {**rule("/", key=breaks), "key": first_of(header("x-key"), client_ip(trusted_proxies=["192.0.2.1"]))}
    yield Attack("a key fails behind a proxy", instead, named("x-forwarded-for", *["203.0.113.9"] * 2))


# Keys that a client makes up


def attacks_by_key() -> Iterator[Attack]:
    for key, values in ((cookie("a"), ("a=1; a=x", "a=2; a=x", "a=x; a=3")), (header("cookie"), ("a", "a ", " a\t"))):
        keyed = {"quota": "1/day", "key": first_of(key, client_ip())}
        yield Attack("several values, or spellings of one", keyed, named("cookie", *values))
    escapes = 'x="' + "\\a" * 200_000 + '"'  # which takes the standard library of some Python minutes
    yield Attack("a cookie that takes long", {"quota": "1/day", "key": cookie("x")}, named("cookie", escapes, escapes))
    twice = [http(headers=[(b"x-key", value), (b"x-key", b"x")]) for value in (b"a", b"b", b"c")]
    yield Attack("a header that comes twice", {"quota": "1/day", "key": header("x-key")}, twice)
    yield Attack("invented keys beside an address", beside("/", "9/s", key=header("x-key")), named("x-key", *"abc"))
    numbers = rule("/items/{id:int}", key=path_param("id"))
    yield Attack("spellings of a number", numbers, paths("/items/7", "/items/007", "/items/7/"))
    yield Attack("numbers that nobody reads", numbers, paths(*["/items/" + digit * 8000 for digit in "123"]))
    yield Attack("a handshake beside requests", {"quota": "1/day"}, [http(), websocket(), http(method="POST")])


# Clients that go, at each await, and memory that is full


async def later(connection: HTTPConnection) -> str:
    await lowlevel.checkpoint()
    return "3/day"


def attacks_by_going() -> Iterator[Attack]:
    five = [http()] * 5
    settled = {"settle": lambda status, headers: 1, "cost": 1}
    for options in ({"quota": "3/day"}, {"quota": later, "key": later}, rule("/", "3/day", **settled)):
        yield Attack("clients that go", options, five, 3, goes=25)
    punished = rule("/", "3/day", penalty=Penalty("1 hour", after=2))
    yield Attack("clients that go before they are blocked", punished, five, 3, goes=25)
    yield Attack("clients that go beside others", beside("/", "3/day"), five, goes=25)


def attacks_by_number() -> Iterator[Attack]:
    crowd = clients(*[f"198.51.100.{number}" for number in range(40)])
    yield Attack("a crowd", {"quota": "2/day"}, [*[http()] * 3, *crowd, http()], 42, max_keys=8)
    made_up = beside("/", "2/day", key=header("x-key"))
    yield Attack("keys that are made up", made_up, [http(), *named("x-key", *map(str, range(40))), http()], max_keys=8)
    yield Attack("paths that are made up", {"quota": "1/day"}, paths(*[f"/{each}" for each in range(40)]), max_keys=1)


ATTACKS: Iterable[Attack] = [
    *attacks_by_path(),
    *attacks_by_method(),
    *attacks_by_failure(),
    *attacks_by_address(),
    *attacks_by_key(),
    *attacks_by_going(),
    *attacks_by_number(),
]


@pytest.mark.parametrize("attack", ATTACKS, ids=[f"{number}: {each.about}" for number, each in enumerate(ATTACKS)])
async def test_no_more_requests_pass_than_the_limit_admits(attack: Attack, store: Store) -> None:
    """Nor fewer, unless some are charged and go."""
    entered = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        entered.append(scope)
        await lowlevel.checkpoint()
        await ok(scope, receive, send)

    if isinstance(store, MemoryStore):
        store = MemoryStore(clock=store.clock, max_keys=attack.max_keys)
    limited = RateLimitMiddleware(app, store=store, **attack.options)
    for steps in range(attack.goes):
        request = asyncio.ensure_future(ask(limited, {**attack.requests[0]}))
        for _ in range(steps):
            await asyncio.sleep(0)
        request.cancel()
        await asyncio.wait([request])
    answers = [await ask(limited, {**request}) for request in attack.requests]
    assert len(entered) <= attack.passes if attack.goes else len(entered) == attack.passes
    assert {start["status"] for answer in answers for start in answer.starts} <= {200, 429, 503}


async def test_what_only_looks_like_it_is_charged_nothing(store: Store) -> None:
    """A path that no app takes for the one of the rule; and an exempt folder is exempt."""
    app = RateLimitMiddleware(ok, store=store, **rule("/login"))
    others = paths("/login", "/log", "/login2", "/x/login", "/login/x", "/Login", "/..login", "/log\nin")
    assert [(await ask(app, each)).status for each in others * 2] == [200] * 8 + [429] + [200] * 7
    app = RateLimitMiddleware(ok, store=store, **beside("/icons/{name:path}", None))
    inside = paths("/icons/a.svg", "/icons/a/b.svg", "/icons/", "/icons")
    assert [(await ask(app, each)).status for each in inside] == [200] * 4


# Apps that read paths by themselves


@pytest.fixture
def files(tmp_path: Path) -> StaticFiles:
    """A folder with a file of which each client gets one a day."""
    (tmp_path / "big.zip").write_bytes(b"x")
    return StaticFiles(directory=tmp_path)


@pytest.mark.parametrize("limit", ["/dl/big.zip", "/dl/{name}", "/dl/{name:path}"])
@pytest.mark.parametrize("path", ["/dl/big.zip", "/dl//big.zip", "/dl/./big.zip", "/dl/x/../big.zip", "/dl/big.zip/"])
async def test_static_files_are_limited(files: StaticFiles, limit: str, path: str, store: Store) -> None:
    """They resolve dots and slashes by themselves."""
    app = RateLimitMiddleware(Starlette(routes=[Mount("/dl", app=files)]), store=store, **rule(limit))
    answers = [(await ask(app, http(path))).status for _ in range(3)]
    assert answers.count(200) <= 1
    assert answers[1:] == [429, 429]


async def test_spellings_of_a_file_are_no_new_keys(files: StaticFiles, tmp_path: Path, store: Store) -> None:
    """Nor are the paths of its folder; all that can be read in several ways have one key."""
    by_name = rule("/dl/{name:path}", key=path_param("name"))
    app = RateLimitMiddleware(Starlette(routes=[Mount("/dl", app=files)]), store=store, **by_name)
    spellings = ["big.zip", "/big.zip", "big.zip/", "//big.zip", "./big.zip", "x/../big.zip"]
    spellings += [f"../{tmp_path.name}/big.zip"]
    assert [(await ask(app, http(f"/dl/{each}"))).status for each in spellings].count(200) <= 2


@pytest.mark.parametrize("path", ["/api/dl/big.zip", "/dl/../big.zip", "/dl//..//big.zip", "/dl/dl/../../big.zip"])
async def test_static_files_of_an_app_that_sets_its_root_path(files: StaticFiles, path: str, store: Store) -> None:
    """Without the root, a mount would read a path from its start."""
    inside = FastAPI()
    inside.root_path = "/api"
    inside.mount("/dl", files)
    app = RateLimitMiddleware(inside, store=store, **rule("/dl/big.zip"))
    assert [(await ask(app, http(path))).status for _ in range(3)].count(200) <= 1


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
    requests = [http("/api/login/ann"), http("/login/ann"), http("/api/login/ann", root_path="/other")]
    assert [(await ask(app, each)).status for each in requests] == [200, 200, 429]
    assert [(await ask(app, http(path))).headers.get("ratelimit") for path in ("/health", "/api/health")] == [None] * 2
    assert (await ask(app, http("/apilogin/ann"))).status == 404
