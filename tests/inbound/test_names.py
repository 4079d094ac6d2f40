"""Names: no two limits share a bucket by accident, neither by their places nor by their names."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from fastapi import Depends, FastAPI
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse
from starlette.routing import Host, Mount, Route
from starlette.testclient import TestClient

from asgi_ratelimit import Limiter, MemoryStore, Overrides, Penalty, RateLimit, RateLimitMiddleware, Rule, SyncLimiter
from asgi_ratelimit.dashboard import summary
from asgi_ratelimit.errors import ConfigurationError
from asgi_ratelimit.quotas import TokenBucket
from asgi_ratelimit.stores.base import owned
from asgi_ratelimit.testing import SteppedClock
from tests.support.asgi import ask, failure_at_start, http, ok

pytestmark = pytest.mark.anyio

CONFLICT = r"two limits named 'api' share a store .* \"\d+/\w+\" and \"\d+/\w+\""

hello = PlainTextResponse("hello")


def a_store() -> MemoryStore:
    return MemoryStore(clock=SteppedClock())


def limiting(store: Any, quota: Any = "1/minute", **options: Any) -> list[Middleware]:
    return [Middleware(RateLimitMiddleware, quota, store=store, **options)]


async def statuses(app: Any, *paths: str, **more: Any) -> list[int]:
    return [(await ask(app, http(path, **more))).status for path in paths]


# Places


async def test_routes_with_a_middleware_each_do_not_share() -> None:
    """Equal quotas on one store are two limits; all values of a path parameter share one, and so do all processes."""
    store = a_store()

    def an_app() -> Starlette:
        return Starlette(
            routes=[
                Route("/a", hello, middleware=limiting(store)),
                Route("/b/{id}", hello, middleware=limiting(store)),
                Route("/c", hello, methods=["GET"], middleware=limiting(store)),
                Route("/c", hello, methods=["POST"], middleware=limiting(store)),
                *[Route(path, hello, middleware=limiting(store, name="both")) for path in ("/d", "/e")],
            ]
        )

    app = an_app()
    assert await statuses(app, "/a", "/b/1", "/b/2", "/a", "/c") == [200, 200, 429, 429, 200]
    assert await statuses(app, "/c", "/c", method="POST") == [200, 429]
    assert await statuses(an_app(), "/c", "/a", "/d", "/e") == [429, 429, 200, 429]


async def test_mounts_with_a_middleware_each_do_not_share() -> None:
    """Around the mount or inside the mounted app; all routes below share one limit, and so do rules of one path."""
    store = a_store()
    inner = [Route("/x", hello), Route("/y", hello)]
    by_rule = limiting(store, None, rules=[Rule("/x", "1/minute")])
    app = Starlette(
        routes=[
            Mount("/a", routes=inner, middleware=limiting(store)),
            Mount("/b", Starlette(routes=inner, middleware=limiting(store))),
            Mount("/c", Starlette(routes=inner, middleware=by_rule)),
            Mount("/d", Starlette(routes=inner, middleware=by_rule)),
            Mount("/{tenant}", Starlette(routes=inner, middleware=limiting(store))),
        ],
        middleware=limiting(store, "100/minute"),
    )
    assert await statuses(app, "/a/x", "/a/y", "/b/x", "/b/y") == [200, 429, 200, 429]
    assert await statuses(app, "/c/x", "/d/x", "/c/x") == [200, 200, 429]
    assert await statuses(app, "/e/x", "/f/x") == [200, 429]


async def test_equal_middlewares_of_one_app_share_their_memory() -> None:
    """Some frameworks build one for each route. Others do not share, nor does one that is around an equal one."""
    app, rule = object(), Rule("/", "9/minute", name="r")
    stores = None, "memory://", None
    routes = [RateLimitMiddleware(ok, "2/minute", rules=[rule], store=store) for store in stores]
    assert [(await ask(each, http(app=app))).status for each in routes] == [200, 200, 429]
    others = [RateLimitMiddleware(ok, "2/minute", rules=[rule], **more) for more in ({"cost": 2}, {"store": a_store()})]
    assert [(await ask(each, http(app=app))).status for each in others] == [200, 200]
    twice = RateLimitMiddleware(RateLimitMiddleware(ok, "2/minute"), "2/minute")
    assert [(await ask(each, http(app=rule))).status for each in (routes[0], *[twice] * 3)] == [429, 200, 200, 429]


# Hosts, and routes of one path


def shop(*limits: RateLimit) -> FastAPI:
    app = FastAPI()
    app.add_api_route("/items", lambda: 1, dependencies=[Depends(each) for each in limits])
    return app


async def statuses_on(app: Any, *hosts: str) -> list[int]:
    """The statuses of a request to each of these hosts."""
    return [(await ask(app, http("/items", headers=[(b"host", host.encode())]))).status for host in hosts]


async def test_hosts_do_not_share() -> None:
    """A route under two hosts is two routes, whether a dependency limits it or a middleware."""
    store = a_store()
    app = Starlette(
        routes=[
            Host("a.example", shop(RateLimit("1/minute"))),
            Host("b.example", shop(RateLimit("2/minute"))),
            Host("c.example", Starlette(routes=[Route("/items", hello)], middleware=limiting(store))),
            Host("{shop}.example", Starlette(routes=[Route("/items", hello)], middleware=limiting(store))),
        ],
        middleware=limiting(a_store(), None),
    )
    hosts = ["a.example", "b.example", "c.example", "d.example"]
    assert await statuses_on(app, *hosts, *hosts) == [200] * 4 + [429, 200, 429, 429]


# Two limits of one name on one store


API, CHAT = Rule("/", "10/minute", name="api"), Rule("/chat", None, messages="10/minute", name="chat")


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        ("api", lambda **more: RateLimitMiddleware(ok, "10/minute", name="api", **more), "20/minute"),
        ("api", lambda **more: RateLimitMiddleware(ok, rules=[API], name="a", **more), "20/minute"),
        ("api", lambda **more: RateLimit("10/minute", name="api", **more), "20/minute"),
        ("api", lambda **more: Limiter("10/minute", name="api", **more), "20/minute"),
        ("api", lambda **more: SyncLimiter("10/minute", name="api", **more), "20/minute"),
        ("chat messages", lambda **more: RateLimitMiddleware(ok, rules=[CHAT], name="a", **more), "9/minute"),
    ],
    ids=["middleware", "rule", "dependency", "limiter", "sync limiter", "messages"],
)
def test_one_name_with_two_quotas_on_one_store_is_refused(name: str, first: Any, second: str) -> None:
    """When the second limit is built, whatever it is; the error shows both quotas and the remedy."""
    store = a_store()
    others = [first(store=store)]
    builders: list[Any] = [
        lambda quota: Limiter(quota, store=store, name=name),
        lambda quota: SyncLimiter(quota, store=store, name=name),
        lambda quota: RateLimit(quota, store=store, name=name),
        lambda quota: RateLimitMiddleware(ok, quota, store=store, name=name),
        lambda quota: RateLimitMiddleware(ok, rules=[Rule("/", quota, name=name)], store=store, name="b"),
        lambda quota: RateLimitMiddleware(ok, rules=[replace(CHAT, messages=quota)], store=store, name="c"),
    ]
    for build in builders[: 6 if name == "chat messages" else 5]:
        conflict = rf"two limits named '{name}' share a store .* \"10/.* and \"{second}.*name=\"uploads\""
        with pytest.raises(ConfigurationError, match=conflict):
            others.append(build(second))
        others += [build("10/minute"), build("30/hour")]


def test_what_is_no_conflict() -> None:
    """Equal quotas share on purpose; other stores are independent, and functions return what they like."""
    store = a_store()
    stores: list[Any] = [store, store, store, a_store(), store]
    quotas: list[Any] = ["10/minute", "10/minute", "20/hour", "30/minute", lambda connection: "40/minute"]
    assert [RateLimitMiddleware(ok, each, store=on, name="api") for each, on in zip(quotas, stores)]


async def test_the_names_of_messages_are_not_those_of_rules() -> None:
    """The page and overrides know the rule, which is what an override changes."""
    store = a_store()
    app = RateLimitMiddleware(ok, rules=[CHAT, Rule("/", "9/hour", name="hourly messages")], store=store)
    assert (await ask(app)).status == 200
    assert list(owned(store)) == [("hourly messages", TokenBucket(9, 3600, name="per-hour"))]
    assert [row.name for row in (await summary(store)).rules] == ["hourly messages"]


async def test_a_conflict_without_names_fails_the_start_up() -> None:
    """The server receives the reason why the app cannot start."""
    store = a_store()
    one, other = (Starlette(middleware=limiting(store, quota)) for quota in ("10/minute", "20/minute"))
    with TestClient(one):
        pass
    assert "two limits named 'default' share a store" in await failure_at_start(other)
    with pytest.raises(ConfigurationError), TestClient(other):  # which would wait for ever if nothing were raised
        pass


@pytest.mark.parametrize("within", [{}, {"rules": [Rule("/", "30/minute", name="api")]}, None], ids=range(3))
async def test_a_conflict_of_dependencies(within: dict[str, Any] | None) -> None:
    """With each other or with a rule: it fails the start-up with the middleware, and each request for them."""
    app = FastAPI()
    for path, quota in (("/first", "10/minute"), ("/second", "20/minute")):
        app.get(path, dependencies=[Depends(RateLimit(quota, name="api"))])(lambda: "hello")
    if within is not None:
        app.add_middleware(RateLimitMiddleware, store=a_store(), **within)
        assert "two limits named 'api' share a store" in await failure_at_start(app)
    for path in ("/second", "/first", "/second"):
        with pytest.raises(ConfigurationError, match=CONFLICT):
            await ask(app, http(path))


# Two rules of one name


def one(connection: HTTPConnection) -> str:
    return "1/minute"


def two(connection: HTTPConnection) -> str:
    return "2/minute"


def limited(*rules: Rule, own: Any = None, **options: Any) -> RateLimitMiddleware:
    return RateLimitMiddleware(ok, own, rules=rules, **{"store": a_store(), **options})


HOUR = Penalty("1 hour")


@pytest.mark.parametrize(
    ("first", "second", "quoted"),
    [
        ({"quota": "9/s"}, {"quota": "9/s burst 5"}, 'quotas named \'per-second\', "9/second" and "9/second bur'),
        ({"quota": "1/s; 2/hour"}, {"quota": "1/s; 3/hour"}, "quotas named 'per-hour', "),
        ({"quota": two}, {"quota": one}, "quotas, two() and one()"),
        ({"quota": one}, {"quota": "2/minute"}, "quotas, one() and 2/minute"),
        ({"shadow": True}, {}, "effects, shadow=True and shadow=False"),
        ({"penalty": HOUR}, {"penalty": Penalty("1 hour", after=50)}, "penalties, Penalty("),
        ({"quota": None, "messages": "2/s"}, {"quota": None, "messages": "9/s"}, "quotas named 'per-second', "),
    ],
)
def test_rules_of_one_name_must_agree(first: dict[str, Any], second: dict[str, Any], quoted: str) -> None:
    """Only one of their limits would hold, so the error quotes both, and shows the remedy; paths do not matter."""
    for path in ("/", "/elsewhere"):
        rules = [Rule("/", **{"quota": "2/minute", "name": "both", **first})]
        rules += [Rule(path, **{"quota": "2/minute", "name": "both", **second})]
        with pytest.raises(ConfigurationError, match=r"two rules named 'both( messages)?' have different ") as refused:
            limited(*rules)
        assert quoted in str(refused.value)
        assert str(refused.value).endswith('would share a bucket: name one Rule(..., name="uploads")')


def test_the_own_quota_is_a_rule_of_its_name() -> None:
    """It must agree with the others."""
    with pytest.raises(ConfigurationError, match="named 'default' have different quotas"):
        limited(Rule("/", one, name="default"), own="2/minute")


async def test_rules_of_one_name_that_agree_are_one_limit() -> None:
    """A function returns one quota for a request, which is charged once; a penalty may be on one of them only."""
    rules = [Rule(path, two, name="both", penalty=each) for path, each in (("/", HOUR), ("/{path:path}", None))]
    assert await statuses(limited(*rules, Rule("/", two, name="both", penalty=HOUR)), *"///") == [200, 200, 429]


async def test_rules_of_one_name_in_shadow_count_once() -> None:
    """So what they would have refused is what they would refuse; under an override to shadow as well."""
    store, trial = a_store(), [Rule(path, "2/minute", name="trial", shadow=True) for path in ("/", "/{path:path}")]
    await Overrides(store).set("trial", "shadow")
    for rules in (trial, [replace(rule, shadow=False) for rule in trial]):
        events: list[Any] = []
        app = limited(*rules, store=store if rules is not trial else a_store(), hooks=[events.append])
        assert await statuses(app, *"///") == [200] * 3
        assert [event.result for event in events] == ["allowed", "allowed", "shadowed"]


QUOTAS = st.sampled_from(["1/minute", "2/minute", one, two])

LIMITS = {"1/minute": 1, "2/minute": 2, one: 1, two: 2}


@given(st.lists(st.tuples(QUOTAS, st.sampled_from("ab"), st.booleans()), min_size=1, max_size=4))
def test_no_limit_is_ever_off(specified: list[tuple[Any, str, bool]]) -> None:
    """Whatever rules meet under whatever names, all that are enforced hold exactly, unless the app does not start."""
    try:
        app = limited(*[Rule("/", quota, name=name, shadow=shadow) for quota, name, shadow in specified])
    except ConfigurationError:
        sharing = [(name, quota, shadow) for quota, name, shadow in specified]
        assert len({name for name, *_ in sharing}) < len(set(sharing))
        return
    admitted = min([LIMITS[quota] for quota, _, shadow in specified if not shadow], default=4)
    assert asyncio.run(statuses(app, *"////")).count(200) == admitted
