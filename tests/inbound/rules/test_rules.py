"""Rules: which requests are charged to which quotas, seen by the headers of their answers."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import HTTPConnection
from starlette.routing import Mount
from starlette.types import ASGIApp, Scope

from asgi_ratelimit import ConfigurationError, MemoryStore, QuotaError, RateLimitMiddleware, Rule, TokenBucket
from asgi_ratelimit.keys import header
from asgi_ratelimit.testing import SteppedClock
from tests.support.asgi import Peer, ask, http, ok, websocket

pytestmark = pytest.mark.anyio


def quota(name: str, limit: float = 10) -> TokenBucket:
    return TokenBucket(limit, 60, name=name)


def limited(*rules: Rule, own: Any = None, **options: Any) -> RateLimitMiddleware:
    """An app with these rules, on a clock that stands still."""
    return RateLimitMiddleware(ok, own, rules=rules, store=MemoryStore(clock=SteppedClock()), **options)


def left(peer: Peer) -> dict[str, int]:
    """What is left of each quota that the request was charged to, in order; empty where it was to none."""
    header = peer.headers.get("ratelimit", "") if peer.starts else ""
    return {name: int(units) for name, units in re.findall(r'"([^"]+)";r=(\d+)', header)}


async def charged(app: ASGIApp, scope: Scope) -> list[str]:
    """The names of the quotas that a request is charged to, in order."""
    return list(left(await ask(app, scope)))


async def matches(rule_path: str, path: str) -> bool:
    return bool(await charged(limited(Rule(rule_path, quota("rule"))), http(path)))


@pytest.mark.parametrize(
    ("rule_path", "path", "expected"),
    [
        ("/", "/", True),
        ("/", "/users", False),
        ("/users", "/users", True),
        ("/users", "/users/", True),  # some apps behind the router take it for the same
        ("/users", "/users/7", False),
        ("/users", "/Users", False),
        ("/users", "/old/users", False),
        ("/users/{id}", "/users/7", True),
        ("/users/{id}", "/users/ann", True),
        ("/users/{id}", "/users/", False),
        ("/users/{id}", "/users/7/posts", False),
        ("/users/{id}/posts/{post}", "/users/7/posts/1", True),
        ("/users/{id:int}", "/users/7", True),
        ("/users/{id:int}", "/users/ann", False),
        ("/price/{amount:float}", "/price/1.5", True),
        ("/jobs/{id:uuid}", "/jobs/11111111-2222-4333-8444-555555555555", True),
        ("/jobs/{id:uuid}", "/jobs/7", False),
        ("/files/{rest:path}", "/files/", True),
        ("/files/{rest:path}", "/files/a/b/c.txt", True),
        ("/files/{rest:path}", "/files", True),
        ("/files/{rest:path}", "/filesystem", False),
        ("/files/{rest:path}", "/profiles/a", False),
        ("/{rest:path}", "/", True),
        ("/{rest:path}", "/any/thing", True),
        ("/a.b", "/a.b", True),
        ("/a.b", "/axb", False),
        ("/a+", "/aa", False),
        ("/grüße", "/grüße", True),
    ],
)
async def test_paths_are_in_the_syntax_of_starlette(rule_path: str, path: str, expected: bool) -> None:
    """A rule matches the whole path, with parameters and their convertors, and nothing in it is a pattern besides."""
    assert await matches(rule_path, path) is expected


@pytest.mark.parametrize("path", ["/api/\n", "/api/items/a\nb", "/api/items/\n/c"], ids=repr)
async def test_no_character_in_a_path_leads_past_a_rule(path: str) -> None:
    """``{rest:path}`` is everything below, a line break (%0A) included, which ``{name}`` of a route matches."""
    assert await matches("/api/{rest:path}", path)


@pytest.mark.parametrize(
    ("methods", "method", "expected"),
    [
        (None, "GET", True),
        (None, "BREW", True),
        (["GET"], "GET", True),
        (["GET"], "HEAD", True),
        (["get"], "GET", True),
        (["get"], "HEAD", True),
        (["HEAD"], "GET", False),
        (["HEAD"], "HEAD", True),
        (["GET"], "POST", False),
        (["POST"], "HEAD", False),
        (["GET"], "OPTIONS", False),
        (("POST", "PUT"), "PUT", True),
        ({"Post"}, "POST", True),
        (["POST"], "post", True),
        (["GET"], "head", True),
    ],
)
async def test_methods_narrow_a_rule_down(methods: Any, method: str, expected: bool) -> None:
    """A rule without methods is for all, GET covers HEAD, and neither side's spelling matters."""
    app = limited(Rule("/", quota("rule"), methods=methods))
    assert bool(await charged(app, http(method=method))) is expected


@pytest.mark.parametrize(("methods", "expected"), [(None, True), (["GET"], False)])
async def test_handshakes_have_no_method(methods: Any, expected: bool) -> None:
    """A WebSocket handshake meets rules for its path, but not those for methods."""
    app = limited(Rule("/", quota("rule"), methods=methods))
    assert bool(await charged(app, websocket())) is expected


PREFLIGHT = {
    "method": "OPTIONS",
    "headers": [(b"origin", b"https://shop.example"), (b"access-control-request-method", b"POST")],
}


@pytest.mark.parametrize(
    ("methods", "only", "expected"),
    [
        (None, False, []),
        (["POST"], False, []),
        (["OPTIONS"], False, ["rule"]),
        (["POST", "options"], True, ["rule"]),
    ],
)
async def test_a_preflight_meets_only_rules_that_name_its_method(methods: Any, only: bool, expected: list[str]) -> None:
    """A browser sends it by itself before the actual request, and only that one counts by default."""
    app = limited(Rule("/", quota("rule"), methods=methods, only=only), own=quota("own"))
    assert await charged(app, http(**PREFLIGHT)) == expected


async def test_an_exemption_covers_preflights() -> None:
    """A rule that exempts and names OPTIONS is stronger than others that name it."""
    app = limited(Rule("/", None, methods=["OPTIONS"]), Rule("/", quota("rule"), methods=["OPTIONS"]))
    assert await charged(app, http(**PREFLIGHT)) == []


@pytest.mark.parametrize(
    "scope",
    [
        http(method="OPTIONS"),
        http(method="OPTIONS", headers=[(b"origin", b"https://shop.example")]),
        http(method="GET", headers=PREFLIGHT["headers"]),
        http(method="options", headers=PREFLIGHT["headers"]),
    ],
    ids=["plain", "without the header", "GET", "lower case"],
)
async def test_what_is_no_preflight_counts(scope: Scope) -> None:
    """Only what a browser sends is exempt: OPTIONS in capitals, with the method of the actual request."""
    app = limited(Rule("/", quota("rule")), own=quota("own"))
    assert await charged(app, scope) == ["own", "rule"]


LONG = "/files/" + "x" * 1000


async def test_long_paths_match_like_others() -> None:
    """However long they are, they share the bucket of their rule."""
    app = limited(Rule("/files/{name}", "10/minute"))
    assert await remaining(app, LONG, LONG, "/files/short") == [9, 8, 7]


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
        ("GET", "/api/users", ["own", "api"]),
        ("GET", "/api/search", ["own", "api", "search"]),
        ("GET", "/api/export", ["export"]),
        ("GET", "/api/health", []),
        ("GET", "/public", []),
        ("POST", "/public", []),
        ("GET", "/first/only", []),
        ("GET", "/second/any", ["early"]),
    ],
)
async def test_what_a_request_is_charged_to(method: str, path: str, expected: list[str]) -> None:
    """All rules that match apply after the own quota; the first that is exempt or ``only`` decides alone."""
    assert await charged(limited(*MANY, own=quota("own")), http(path, method=method)) == expected


async def test_rules_need_no_quota_of_the_middleware() -> None:
    """Without an own quota, only what the rules name is limited."""
    app = limited(*MANY)
    assert await charged(app, http("/")) == []
    assert await charged(app, http("/api/search")) == ["api", "search"]


async def test_a_rule_may_have_several_quotas() -> None:
    """The quotas of one rule are all charged."""
    app = limited(Rule("/", "5/second; 100/hour"))
    assert left(await ask(app)) == {"per-second": 4, "per-hour": 99}


async def remaining(app: ASGIApp, *paths: str, method: str = "GET") -> list[int]:
    """What the last quota of each answer says is left, asking for one path after the other."""
    return [list(left(await ask(app, http(path, method=method))).values())[-1] for path in paths]


async def test_rules_have_buckets_of_their_own() -> None:
    """By default rules for other paths, or other methods, do not share, even with equal quotas."""
    app = limited(
        Rule("/a", "10/minute"),
        Rule("/b", "10/minute"),
        Rule("/c", "10/minute", methods=["GET"]),
        Rule("/c", "10/minute", methods=["POST"]),
    )
    assert await remaining(app, "/a", "/a", "/b", "/c") == [9, 8, 9, 9]
    assert await remaining(app, "/c", method="POST") == [9]


async def test_the_paths_of_one_rule_share_its_bucket() -> None:
    """A parameter in the path does not multiply the quota."""
    assert await remaining(limited(Rule("/users/{id}", "10/minute")), "/users/1", "/users/2") == [9, 8]


async def test_the_own_quota_is_not_the_rules() -> None:
    """A rule with a quota equal to the own one has another bucket: what was used elsewhere does not count."""
    app = limited(Rule("/a", "10/minute", only=True), own="10/minute")
    assert await remaining(app, "/", "/", "/a") == [9, 8, 9]


async def test_two_middlewares_of_other_names_do_not_share() -> None:
    """The names of rules start with the middleware's, so that two apps can share a store."""
    store = MemoryStore(clock=SteppedClock())
    one, other = (
        RateLimitMiddleware(ok, rules=[Rule("/", "10/minute")], store=store, name=name) for name in ("one", "other")
    )
    assert await remaining(one, "/") == await remaining(other, "/") == [9]


async def test_rules_of_one_name_share_a_bucket() -> None:
    """What is used under one of them is gone under the other."""
    app = limited(Rule("/a", "10/minute", name="both"), Rule("/b", "10/minute", name="both"))
    assert await remaining(app, "/a", "/b", "/a") == [9, 8, 7]


async def test_a_request_is_charged_to_a_shared_bucket_once() -> None:
    """Where two rules of one name match, the request counts as one, and shows as one quota."""
    app = limited(Rule("/{rest:path}", "10/minute", name="both"), Rule("/a", "10/minute", name="both"))
    assert left(await ask(app, http("/a"))) == {"per-minute": 9}
    assert left(await ask(app, http("/b"))) == {"per-minute": 8}


async def test_of_two_costs_for_a_shared_bucket_the_first_counts() -> None:
    """Once is once, also where the rules of one name do not agree on the cost."""
    app = limited(Rule("/{rest:path}", "10/minute", name="both", cost=3), Rule("/a", "10/minute", name="both", cost=2))
    assert left(await ask(app, http("/a"))) == {"per-minute": 7}


async def test_a_rule_may_share_the_own_bucket() -> None:
    """A rule of the middleware's name with its quota is charged with it, once."""
    app = limited(Rule("/a", "10/minute", name="default"), own="10/minute")
    assert left(await ask(app, http("/a"))) == {"per-minute": 9}


async def test_one_name_under_two_keys_is_two_buckets() -> None:
    """Rules of one name share buckets, not clients: each charges whom its key names."""
    app = limited(
        Rule("/", "10/minute", name="both"),
        Rule("/", "10/minute", name="both", key=header("x-api-key")),
    )
    peer = await ask(app, http(headers=[(b"x-api-key", b"k")]))
    assert left(peer) == {"per-minute": 9, "both per-minute": 9}


async def test_one_name_with_quotas_of_other_names_is_fine() -> None:
    """Rules of one name that limit different periods do not meet in a bucket."""
    app = limited(Rule("/", "10/minute", name="both"), Rule("/", "20/hour", name="both"))
    assert left(await ask(app)) == {"per-minute": 9, "per-hour": 19}


@pytest.mark.parametrize(
    ("rules", "own"),
    [
        ([Rule("/a", "10/minute", name="both"), Rule("/b", "20/minute", name="both")], None),
        ([Rule("/a", "10/minute", name="both"), Rule("/b", "10/minute burst 5", name="both")], None),
        ([Rule("/a", "10/minute; 20/hour", name="both"), Rule("/b", "10/minute; 30/hour", name="both")], None),
        ([Rule("/a", "20/minute", name="default")], "10/minute"),
    ],
    ids=["limits", "bursts", "one of two", "the own quota"],
)
async def test_one_bucket_cannot_have_two_quotas(rules: list[Rule], own: str | None) -> None:
    """Rules that would share a bucket with different quotas raise at start-up, with both quotas and a solution."""
    with pytest.raises(ConfigurationError, match=r'different quotas .*"\d+/.*" and "\d+/.*name="uploads"'):
        limited(*rules, own=own)


async def test_rules_have_the_key_and_the_cost_of_the_middleware() -> None:
    """Unless a rule names its own."""
    key = header("x-api-key")
    app = limited(Rule("/a", quota("a")), Rule("/b", quota("b"), cost=3), key=key, cost=2)
    ann = [(b"x-api-key", b"ann")]
    assert left(await ask(app, http("/a", headers=ann))) == {"a": 8}
    assert left(await ask(app, http("/b", headers=ann))) == {"b": 7}
    assert left(await ask(app, http("/a"))) == {}


async def test_the_key_of_a_rule_is_its_own() -> None:
    """Each rule charges whom its own key names, and does not apply where that names nobody."""

    def tenant(connection: HTTPConnection) -> str | None:
        return connection.headers.get("x-tenant")

    app = limited(Rule("/", quota("tenant"), key=tenant), own=quota("own"))
    acme, other = ([(b"x-tenant", name)] for name in (b"acme", b"other"))
    assert left(await ask(app, http(headers=acme))) == {"own": 9, "tenant": 9}
    assert left(await ask(app, http(headers=other))) == {"own": 8, "tenant": 9}
    assert left(await ask(app, http(headers=acme, client=("192.0.2.2", 1)))) == {"own": 9, "tenant": 8}
    assert left(await ask(app, http())) == {"own": 7}


@pytest.mark.parametrize(
    ("path", "root_path", "expected"),
    [
        ("/users", "", True),
        ("/api/users", "/api", True),
        ("/users", "/api", True),  # a proxy has taken the prefix off
        ("/apiusers", "/api", False),
        ("/api/api/users", "/api", False),
        ("/other/users", "/api", False),
        ("/api", "/api", False),
    ],
)
async def test_rules_are_about_the_path_below_the_root_path(path: str, root_path: str, expected: bool) -> None:
    """Wherever an app is mounted, its rules match what its routes do."""
    app = limited(Rule("/users", quota("rule")))
    assert bool(await charged(app, http(path, root_path=root_path))) is expected


async def test_a_path_that_only_starts_like_the_root_path_is_whole() -> None:
    """As for the routes, the root path ends where a part of the path does."""
    app = limited(Rule("/apiusers", quota("rule")))
    assert await charged(app, http("/apiusers", root_path="/api")) == ["rule"]


def mounted(*, path: str, rule_path: str) -> ASGIApp:
    """An app at ``path`` of another one, with a rule of its own."""
    rules = [Rule(rule_path, quota("inner"))]
    inner = Starlette(routes=[Mount("/", ok)], middleware=[Middleware(RateLimitMiddleware, rules=rules)])
    return Starlette(routes=[Mount(path, inner)])


async def test_a_mounted_app_does_not_know_where_it_is() -> None:
    """The rules of a mounted app are written without the path of the mount."""
    app = mounted(path="/v1", rule_path="/users")
    assert await charged(app, http("/v1/users")) == ["inner"]
    assert await charged(app, http("/v1/v1/users")) == []


async def test_a_rule_of_the_outer_app_names_the_whole_path() -> None:
    """The outer app sees the request before it is routed, and its rules cover what is mounted."""
    app = RateLimitMiddleware(mounted(path="/v1", rule_path="/none"), rules=[Rule("/v1/{rest:path}", quota("outer"))])
    assert await charged(app, http("/v1/users")) == ["outer"]


WRONG: Sequence[tuple[Callable[[], Rule], type[Exception], str]] = [
    (lambda: Rule("users", "1/s"), ConfigurationError, "not 'users'"),
    (lambda: Rule("", "1/s"), ConfigurationError, "not ''"),
    (lambda: Rule("*", "1/s"), ConfigurationError, "not '*'"),
    (lambda: Rule(7, "1/s"), ConfigurationError, "not 7"),  # type: ignore[arg-type]
    (lambda: Rule("/{id:number}", "1/s"), ConfigurationError, "'/{id:number}' is not a valid path"),
    (lambda: Rule("/{id}/{id}", "1/s"), ConfigurationError, "'/{id}/{id}' is not a valid path"),
    (lambda: Rule("/u/{id", "1/s"), ConfigurationError, "'/u/{id' has a brace that is part of no parameter: Rule("),
    (lambda: Rule("/items/id}", "1/s"), ConfigurationError, "'/items/id}' has a brace"),
    (lambda: Rule("/items/{}", "1/s"), ConfigurationError, "'/items/{}' has a brace"),
    (lambda: Rule("/items/{i d}", "1/s"), ConfigurationError, "'/items/{i d}' has a brace"),
    (lambda: Rule("/items/{id:}", "1/s"), ConfigurationError, "'/items/{id:}' has a brace"),
    (lambda: Rule("/items/{id:int", None), ConfigurationError, "'/items/{id:int' has a brace"),
    (lambda: Rule("/items/{{id}}", "1/s"), ConfigurationError, "'/items/{{id}}' has a brace"),
    (lambda: Rule("/{id:number}", None), ConfigurationError, "'/{id:number}' is not a valid path"),
    (lambda: Rule("/", "1/s", methods="POST"), ConfigurationError, "not 'POST'"),
    (lambda: Rule("/", "1/s", methods=[]), ConfigurationError, "not []"),
    (lambda: Rule("/", "1/s", methods=[None]), ConfigurationError, "not [None]"),  # type: ignore[list-item]
    (lambda: Rule("/", "1/s", methods=["get,post"]), ConfigurationError, "not ['get,post']"),
    (lambda: Rule("/", "1/s", methods=["POST "]), ConfigurationError, "not ['POST ']"),
    (lambda: Rule("/", "1/s", methods=["*"]), ConfigurationError, "not ['*']"),
    (lambda: Rule("/", "1/s", methods=["GET", "PSOT"]), ConfigurationError, "'PSOT' is not an HTTP method, did you"),
    (lambda: Rule("/", "1/s", methods=5), ConfigurationError, "not 5"),  # type: ignore[arg-type]
    (lambda: Rule("/", "1/s", name=""), ConfigurationError, "not ''"),
    (lambda: Rule("/", "1/s", cost=0), ValueError, "not 0"),
    (lambda: Rule("/", "1/s", cost=-1), ValueError, "not -1"),
    (lambda: Rule("/", "1/s", cost=float("nan")), ValueError, "not nan"),
    (lambda: Rule("/", "1/s", cost="2"), ValueError, "not '2'"),  # type: ignore[arg-type]
    (lambda: Rule("/", "1/lightyear"), QuotaError, "'1/lightyear'"),
    (lambda: Rule("/", ()), QuotaError, "not ()"),
    (lambda: Rule("/", "1/s; 2/s"), ConfigurationError, "'per-second'"),
    (lambda: Rule("/", "5/mintue"), QuotaError, "5/mintue"),
    (lambda: Rule("/", "1/s", messages="5/mintue"), QuotaError, "5/mintue"),
    (lambda: Rule("/", "1/s", max_delay=-1), ConfigurationError, "max_delay must be seconds from 0 to 400 days"),
    (lambda: Rule("/", "1/s", key="x-user"), ConfigurationError, "not 'x-user'"),  # type: ignore[arg-type]
    (lambda: Rule("/", "1/s", on_error="open"), ConfigurationError, "not 'open'"),  # type: ignore[arg-type]
    (lambda: Rule("/", "1/s", settle=5), ConfigurationError, "not 5"),  # type: ignore[arg-type]
    (lambda: Rule("/", None, cost=3), ConfigurationError, "cost=3 without a quota charges nothing"),
    (lambda: Rule("/", None, cost=1, messages="5/s"), ConfigurationError, "and a message always costs 1: quota="),
    (lambda: Rule("/", None, settle=lambda status, headers: 0), ConfigurationError, "without a quota charges nothing"),
    (lambda: Rule("/", None, max_delay=2.0), ConfigurationError, "max_delay=2.0 without a quota"),
    (lambda: Rule("/", "1/s", penalty=5), ConfigurationError, "not 5"),  # type: ignore[arg-type]
    (lambda: Rule("/", "1/s", on_limited=5), ConfigurationError, "not 5"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("rule", "error", "quote"), WRONG, ids=map(str, range(len(WRONG))))
def test_rules_that_cannot_be_are_refused(rule: Callable[[], Rule], error: type[Exception], quote: str) -> None:
    """A wrong value in a rule is quoted on the very line that writes it, which no framework puts off."""
    with pytest.raises(error, match=re.escape(quote)):
        rule()


async def test_quotas_may_come_from_an_iterator() -> None:
    """It is read once, although the rules are compiled again, at the first request and with each override."""
    assert Rule("/", iter(["5/s", "7/minute"]), messages=iter(["2/s"])).messages == ("2/s",)
    assert Rule("/", iter(["5/s", "7/minute"])).quota == ("5/s", "7/minute")
    assert (await ask(limited(own=iter(["5/s", "7/minute"])))).status == 200


def test_a_rule_is_a_value() -> None:
    """Rules compare by what they say, cannot be changed, and take all but path and quota by name."""
    assert Rule("/a", "1/s", only=True) == Rule("/a", "1/s", only=True)
    with pytest.raises(AttributeError):
        Rule("/a", "1/s").path = "/b"  # type: ignore[misc]
    with pytest.raises(ConfigurationError, match="methods="):
        Rule("/a", "1/s", ["GET"])  # type: ignore[call-arg]
