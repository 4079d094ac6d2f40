"""Rules: which requests are charged to which quotas, seen by the headers of their answers."""

from __future__ import annotations

import re
import tracemalloc
from typing import Any

import pytest
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from asgi_ratelimit import ConfigurationError, MemoryStore, QuotaError, RateLimitMiddleware, Rule, TokenBucket
from asgi_ratelimit.keys import header
from asgi_ratelimit.testing import SteppedClock
from tests.support.asgi import Peer, ask, http, ok, websocket

pytestmark = pytest.mark.anyio


def quota(name: str, limit: float = 10) -> TokenBucket:
    return TokenBucket(limit, 60, name=name)


def limited(*rules: Rule, own: Any = None, app: ASGIApp = ok, **options: Any) -> RateLimitMiddleware:
    """An app with these rules, on a clock that stands still."""
    return RateLimitMiddleware(app, own, rules=rules, store=MemoryStore(clock=SteppedClock()), **options)


def left(peer: Peer) -> dict[str, int]:
    """What is left of each quota that the request was charged to, in order; empty where it was to none."""
    header = peer.headers.get("ratelimit", "") if peer.starts else ""
    return {name: int(units) for name, units in re.findall(r'"([^"]+)";r=(\d+)', header)}


async def charged(app: ASGIApp, scope: Scope) -> list[str]:
    """The names of the quotas that a request is charged to, in order."""
    return list(left(await ask(app, scope)))


async def remaining(app: ASGIApp, *paths: str, method: str = "GET") -> list[int]:
    """What the last quota of each answer says is left, asking for one path after the other."""
    return [list(left(await ask(app, http(path, method=method))).values())[-1] for path in paths]


@pytest.mark.parametrize(
    ("rule_path", "path", "expected"),
    [
        ("/", "/", True),
        ("/users", "/users", True),
        ("/users", "/users/", True),  # some apps behind the router take it for the same
        ("/users", "/users/7", False),
        ("/users/{id}", "/users/ann", True),
        ("/users/{id}", "/users/7/posts", False),
        ("/users/{id:int}", "/users/7", True),
        ("/users/{id:int}", "/users/ann", False),
        ("/jobs/{id:uuid}", "/jobs/11111111-2222-4333-8444-555555555555", True),
        ("/files/{rest:path}", "/files/a/b/c.txt", True),
        ("/files/{rest:path}", "/files", True),
        ("/files/{rest:path}", "/filesystem", False),
        ("/a.b", "/axb", False),
        ("/grüße", "/grüße", True),
    ],
)
async def test_paths_are_in_the_syntax_of_starlette(rule_path: str, path: str, expected: bool) -> None:
    """A rule matches the whole path, with parameters and their convertors, and nothing in it is a pattern besides."""
    assert bool(await charged(limited(Rule(rule_path, quota("rule"))), http(path))) is expected


@pytest.mark.parametrize(
    ("methods", "scope", "expected"),
    [
        (None, websocket(), True),
        (["get"], http(), True),
        (["GET"], http(method="HEAD"), True),
        (["GET"], http(method="POST"), False),
        (["GET"], websocket(), False),
        (("POST", "PUT"), http(method="PUT"), True),
        ({"Propfind"}, http(method="PROPFIND"), True),
    ],
)
async def test_methods_narrow_a_rule_down(methods: Any, scope: Scope, expected: bool) -> None:
    """A rule without methods is for all, GET covers HEAD, and a handshake has none."""
    assert bool(await charged(limited(Rule("/", quota("rule"), methods=methods)), scope)) is expected


@pytest.mark.parametrize(
    ("methods", "options", "expected"),
    [(None, {}, []), (["POST"], {}, []), (["OPTIONS"], {}, ["rule"]), (["POST", "options"], {"only": True}, ["rule"])],
)
async def test_a_preflight_meets_rules_that_name_its_method(methods: Any, options: Any, expected: list[str]) -> None:
    """A browser sends it by itself before the actual request, and only that one counts by default."""
    preflight = http(method="OPTIONS", headers=[(b"access-control-request-method", b"POST")])
    rule = Rule("/", quota("rule"), methods=methods, **options)
    assert await charged(limited(rule, own=quota("own")), preflight) == expected
    assert await charged(limited(Rule("/", None, methods=["OPTIONS"]), rule), preflight) == []


MANY = (
    Rule("/public", None),
    Rule("/login", quota("login"), methods=["POST"]),
    Rule("/api/{rest:path}", quota("api")),
    Rule("/api/search", quota("search")),
    Rule("/api/export", quota("export"), only=True),
    Rule("/api/health", None),
    Rule("/first/{rest:path}", None),
    Rule("/first/only", quota("late"), only=True),
    Rule("/second/{rest:path}", quota("early"), only=True),
    Rule("/second/{rest:path}", None),
    Rule("/second/{rest:path}", quota("later"), only=True),
)


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/", ["own"]),
        ("GET", "/login", ["own"]),
        ("POST", "/login", ["own", "login"]),
        ("GET", "/api/search", ["own", "api", "search"]),
        ("GET", "/api/export", ["export"]),
        ("GET", "/api/health", []),
        ("POST", "/public", []),
        ("GET", "/first/only", []),
        ("GET", "/second/any", ["early"]),
    ],
)
async def test_what_a_request_is_charged_to(method: str, path: str, expected: list[str]) -> None:
    """All rules that match apply after the own quota; the first that is exempt or ``only`` decides alone."""
    scope = http(path, method=method)
    assert await charged(limited(*MANY, own=quota("own")), scope) == expected
    assert await charged(limited(*MANY), scope) == [name for name in expected if name != "own"]


def test_long_paths_and_methods_are_not_remembered() -> None:
    """Nobody fills the memory with them; paths that meet the same rules have one plan."""
    table = limited(*MANY, own="1/s").rule_table
    assert table.plan_for(http("/api/a")) is table.plan_for(http("/api/b")) is not table.plan_for(http("/"))
    tracemalloc.start()
    try:
        for number in range(30):
            for scope in (http(f"/api/{number}{'x' * 1_000_000}"), http(method=f"{number}{'X' * 1_000_000}")):
                assert table.plan_for(scope) is not None
        assert tracemalloc.get_traced_memory()[0] < 2_000_000
    finally:
        tracemalloc.stop()


# Buckets


async def test_rules_have_buckets_of_their_own() -> None:
    """Those for other paths or methods do not share; the paths of one rule do, whatever the parameter in them."""
    app = limited(
        Rule("/a", "10/minute", only=True),
        Rule("/b/{id}", "10/minute", only=True),
        Rule("/c", "10/minute", methods=["GET"]),
        Rule("/c", "10/minute", methods=["POST"]),
        own="10/minute",
    )
    assert await remaining(app, "/", "/", "/a", "/a", "/b/1", "/b/2", "/c") == [9, 8, 9, 8, 9, 8, 9]
    assert await remaining(app, "/c", method="POST") == [9]


async def test_rules_of_one_name_share_a_bucket() -> None:
    """Where two of them match, the request counts once, at the first cost; the own quota may have that name, too."""
    one, all_of = Rule("/a", "10/minute", name="both", cost=2), Rule("/{rest:path}", "10/minute", name="both")
    assert [left(await ask(limited(*order), http("/a"))) for order in ((one, all_of), (all_of, one))] == [
        {"per-minute": 8},
        {"per-minute": 9},
    ]
    assert await remaining(limited(one, all_of), "/a", "/b", "/a") == [8, 7, 5]
    app = limited(Rule("/a", "10/minute", name="default"), own="10/minute")
    assert left(await ask(app, http("/a"))) == {"per-minute": 9}


async def test_a_rule_has_the_key_and_the_cost_of_the_middleware() -> None:
    """Unless it names its own; it does not apply where its key names nobody."""

    def tenant(connection: HTTPConnection) -> str | None:
        return connection.headers.get("x-tenant")

    rules = [Rule("/", quota("a")), Rule("/", quota("b"), cost=3), Rule("/", quota("tenant"), key=tenant)]
    app = limited(*rules, key=header("x-api-key"), cost=2)
    ann, acme = (b"x-api-key", b"ann"), (b"x-tenant", b"acme")
    assert left(await ask(app, http(headers=[ann, acme]))) == {"a": 8, "b": 7, "tenant": 8}
    assert left(await ask(app, http(headers=[ann]))) == {"a": 6, "b": 4}
    assert left(await ask(app, http(headers=[acme]))) == {"tenant": 6}
    assert left(await ask(app, http())) == {}


# Root paths and mounts


@pytest.mark.parametrize(
    ("path", "root_path", "expected"),
    [
        ("/users", "", True),
        ("/api/users", "/api", True),
        ("/users", "/api", True),  # a proxy has taken the prefix off
        ("/apiusers", "/api", False),
        ("/api/api/users", "/api", False),
        ("/api", "/api", False),
    ],
)
async def test_rules_are_about_the_path_below_the_root_path(path: str, root_path: str, expected: bool) -> None:
    """Wherever an app is mounted, its rules match what its routes do."""
    app = limited(Rule("/users", quota("rule")))
    assert bool(await charged(app, http(path, root_path=root_path))) is expected


async def test_an_attribute_of_another_framework_is_no_root_path() -> None:
    """For Flask and Quart, ``root_path`` is the folder of the app: paths and scopes stay as they are."""

    class Quart:
        root_path = "/home/shop"

        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            assert scope["root_path"] == ""
            await ok(scope, receive, send)

    app = limited(Rule("/login", "1/minute"), app=Quart())
    assert [(await ask(app, http("/login"))).status for _ in range(2)] == [200, 429]


@pytest.mark.parametrize("path", ["/v1/jobs/{id}:cancel", "/x|y", "/api/$metadata", "/100%", "/c++"])
async def test_a_path_has_what_those_of_routes_may_have(path: str) -> None:
    """Whatever stands for itself there does so here."""
    app = limited(Rule(path, "1/minute"))
    asked = path.replace("{id}", "5")
    assert [(await ask(app, http(asked))).status for _ in range(2)] == [200, 429]


# Rules that cannot be


WRONG: list[tuple[tuple[Any, ...], dict[str, Any], type[Exception], str]] = [
    (("users", "1/s"), {}, ConfigurationError, "not 'users'"),
    (("/{id:number}", None), {}, ConfigurationError, "'/{id:number}' is not a valid path"),
    (("/{id}/{id}", "1/s"), {}, ConfigurationError, "'/{id}/{id}' is not a valid path"),
    (("/u/{id", "1/s"), {}, ConfigurationError, "'/u/{id' has a '{' that is part of no parameter"),
    (("/files/*", "1/s"), {}, ConfigurationError, 'and would stand for itself: Rule("/users/{id}", ...), '),
    (("/users/<id>", "1/s"), {}, ConfigurationError, "'/users/<id>' has a '<'"),
    (("/users/:id", "1/s"), {}, ConfigurationError, "'/users/:id' has a ':'"),
    (("/search?q=1", "1/s"), {}, ConfigurationError, "'/search?q=1' has a '?'"),
    ((r"/users/\d+", "1/s"), {}, ConfigurationError, r"'/users/\\d+' has a '\\'"),
    (("/users/(x)+", "1/s"), {}, ConfigurationError, "has a '+'"),
    (("/(.+)", "1/s"), {}, ConfigurationError, "has a '.+'"),
    (("/users/{id}$", "1/s"), {}, ConfigurationError, "has a '$'"),
    (("/caf%C3%A9", "1/s"), {}, ConfigurationError, "has a '%C3'"),
    (("/", "1/lightyear"), {}, QuotaError, "'1/lightyear'"),
    (("/", "1/s; 2/s"), {}, ConfigurationError, "'per-second'"),
    (("/", "1/s", ["GET"]), {}, ConfigurationError, "methods="),
    (("/", "1/s"), {"methods": "POST"}, ConfigurationError, "not 'POST'"),
    (("/", "1/s"), {"methods": []}, ConfigurationError, "not []"),
    (("/", "1/s"), {"methods": ["get,post"]}, ConfigurationError, "not ['get,post']"),
    (("/", "1/s"), {"name": ""}, ConfigurationError, "not ''"),
    (("/", "1/s"), {"cost": 0}, ValueError, "not 0"),
    (("/", "1/s"), {"messages": "5/mintue"}, QuotaError, "5/mintue"),
    (("/", "1/s"), {"max_delay": -1}, ConfigurationError, "max_delay must be seconds from 0 to 400 days"),
    (("/", "1/s"), {"retry_after": 3}, ConfigurationError, "a rate knows its own"),
    (("/", None), {"retry_after": 3}, ConfigurationError, "charges nothing"),
    (
        ("/", None),
        {"key": header("x-internal")},
        ConfigurationError,
        "charges nothing: Rule('/', \"10/s\", cost=3), allow=",
    ),
    (("/", "5 at once"), {"retry_after": 0}, ValueError, "retry_after must be"),
    (("/", "5/s"), {"messages": "5 at once"}, ConfigurationError, "messages have a rate"),
    (("/", "1/s"), {"shadow": "false"}, ConfigurationError, "shadow must be True or False, not 'false'"),
]


@pytest.mark.parametrize(("arguments", "options", "error", "quote"), WRONG, ids=range(len(WRONG)))
def test_rules_that_cannot_be(arguments: Any, options: Any, error: type[Exception], quote: str) -> None:
    """A wrong value is quoted on the very line that writes it, which no framework puts off."""
    with pytest.raises(error, match=re.escape(quote)):
        Rule(*arguments, **options)


def test_a_rule_is_a_value() -> None:
    """Rules compare by what they say, and cannot be changed."""
    assert Rule("/a", "1/s", only=True) == Rule("/a", "1/s", only=True)
    with pytest.raises(AttributeError):
        Rule("/a", "1/s").path = "/b"  # type: ignore[misc]
