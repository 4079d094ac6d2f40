"""``Depends(RateLimit(...))``, in FastAPI apps with and without the middleware around them."""

from __future__ import annotations

import gc
import json
import re
from copy import deepcopy
from dataclasses import replace
from typing import Annotated, Any
from weakref import ref

import pytest
from fastapi import APIRouter, Depends, FastAPI, Request, WebSocket
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.testclient import TestClient, WebSocketDenialResponse
from starlette.websockets import WebSocketDisconnect

from asgi_ratelimit import ConfigurationError, RateLimit, RateLimitMiddleware, RedisStore, Rule, limited_responses
from asgi_ratelimit.inbound.plan import USUAL
from asgi_ratelimit.keys import client_ip, combine, header, path_param
from asgi_ratelimit.stores import MemoryStore
from asgi_ratelimit.testing import SteppedClock
from asgi_ratelimit.tools.coverage import routes_of, rules_of
from tests.support.asgi import Peer, ask, failure_at_start, http, limited, ok
from tests.support.redis_cluster import script_calls
from tests.support.redis_server import RedisServer

pytestmark = pytest.mark.anyio


def a_store() -> MemoryStore:
    return MemoryStore(clock=SteppedClock())


def limit(quota: Any = "10/minute", **options: Any) -> Any:
    """A dependency on a clock that stands still."""
    return Depends(RateLimit(quota, **{"store": a_store(), **options}))


def hello() -> str:
    return "hello"


def a_route(*dependencies: Any, endpoint: Any = hello, **options: Any) -> FastAPI:
    app = FastAPI(**options)
    app.get("/", dependencies=dependencies)(endpoint)
    return app


def within(app: FastAPI, quota: Any = None, **options: Any) -> FastAPI:
    """The app, inside the middleware."""
    app.add_middleware(RateLimitMiddleware, quota=quota, store=a_store(), **options)
    return app


def test_a_limit_without_depends_is_refused() -> None:
    """When the route is built; the error shows what to write, with the limit itself."""
    mend = r'lacks Depends, and limits nobody: dependencies=\[Depends\(RateLimit\("1/minute"\)\)\]'
    for build in (a_route, lambda wrong: FastAPI(dependencies=[wrong]).get("/")(hello)):
        with pytest.raises(ConfigurationError, match=mend):
            build(RateLimit("1/minute"))


def by_account(account: Annotated[str, Depends(client_ip)]) -> str:
    """A key whose ``client_ip`` FastAPI would make for each request, with arguments from the query."""
    return account


def by_nested_account(account: str = Depends(by_account)) -> str:
    """A key that needs another one."""
    return account


def by_annotation(account: Annotated[client_ip, Depends()]) -> str:
    """A key whose ``client_ip`` stands in the annotation alone."""
    return str(account)


@pytest.mark.parametrize("key", [by_account, by_nested_account, by_annotation])
async def test_a_class_of_keys_below_the_key_lacks_its_call(key: Any) -> None:
    """Refused at the start within the middleware, and else at the first request of the app."""
    mend = "Depends(client_ip) lacks the call of client_ip, so that each client would choose its arguments"
    app = a_route(limit(key=Depends(key), name="one"))
    app.get("/other", dependencies=[limit(name="other")])(hello)
    for _ in range(2):
        with pytest.raises(ConfigurationError, match=re.escape(mend)):
            await ask(app, http("/other"))
    assert mend in await failure_at_start(RateLimitMiddleware(app, "9/minute"))


WITHOUT_DEPENDS = r'lacks Depends, and limits nobody: .*Depends\(RateLimit\("5/minute"\)\)'
DEFAULT_WITHOUT_DEPENDS = r'lacks Depends, and limits nobody: .*Depends\(RateLimit\("2/minute"\)\)'


def test_a_limit_in_an_annotation_lacks_depends() -> None:
    """FastAPI would take it for what describes a parameter of the request: refused when the route is built."""

    def endpoint(limit: Annotated[None, RateLimit("2/minute")] = None) -> None: ...

    with pytest.raises(ConfigurationError, match=WITHOUT_DEPENDS):
        a_route(endpoint=endpoint)


def by_default(limit: Any = RateLimit("2/minute")) -> None:  # noqa: B008  # the mistake
    """A dependency, or an endpoint, with a limit that lacks ``Depends``."""


@pytest.mark.parametrize("app", [a_route(endpoint=by_default), a_route(Depends(by_default))])
async def test_a_limit_as_a_default_lacks_depends(app: FastAPI) -> None:
    """FastAPI would take it for the default of a parameter of the request: refused at the first request."""
    with pytest.raises(ConfigurationError, match=DEFAULT_WITHOUT_DEPENDS):
        await ask(app)


def returns_a_limit() -> RateLimit:
    return RateLimit("2/minute")


async def test_a_dependency_that_returns_a_limit() -> None:
    """FastAPI would not call the limit: the middleware finds it when the app starts, and so does ``check``."""
    mend = "returns_a_limit returns a RateLimit, which FastAPI does not call: Depends(returns_a_limit())"
    app = a_route(Depends(returns_a_limit))
    assert mend in await failure_at_start(RateLimitMiddleware(app, "9/minute"))
    _, findings = rules_of(routes_of(app))
    assert any(mend in each for each in findings)
    assert rules_of(routes_of(a_route(Depends(returns_a_limit()))))[1] == []


async def test_a_deep_copy_is_the_same_limit() -> None:
    """It takes from the store of the limit that was copied."""
    router = APIRouter(dependencies=[limit("1/minute", name="api")])
    router.get("/")(hello)
    apps = [FastAPI(), FastAPI()]
    for app, each in zip(apps, [router, deepcopy(router)]):
        app.include_router(each)
    assert [await statuses(app, http()) for app in apps] == [[200], [429]]


def left(peer: Peer) -> str:
    """What the answer says is left, without the times."""
    return ", ".join(each.rpartition(";")[0] for each in peer.headers.get("ratelimit", "").split(", "))


async def statuses(app: Any, *scopes: Any) -> list[int]:
    return [(await ask(app, scope)).status for scope in scopes]


# Where it stands


async def test_nested_routers_are_limited() -> None:
    """At every level of nesting."""
    leaf, branch = APIRouter(), APIRouter(dependencies=[limit("3/minute", name="branch")])
    leaf.get("/leaf", dependencies=[limit("2/minute", name="leaf")])(hello)
    branch.include_router(leaf, prefix="/branch")
    branch.get("/other")(hello)
    app = FastAPI()
    app.include_router(branch, prefix="/v1", dependencies=[limit("9/minute", name="include")])
    peer = await ask(app, http("/v1/branch/leaf"))
    assert left(peer) == '"per-minute";r=8, "branch per-minute";r=2, "leaf per-minute";r=1'
    assert await statuses(app, http("/v1/branch/leaf"), http("/v1/branch/leaf")) == [200, 429]
    assert await statuses(app, http("/v1/other"), http("/v1/other")) == [200, 429]


async def test_two_instances_are_two_limits() -> None:
    """Even with equal quotas, on one store, each on its own route."""
    store = a_store()
    one, other = (RateLimit("1/minute", store=store) for _ in range(2))
    app = a_route(Depends(one))
    app.get("/other", dependencies=[Depends(other)])(hello)
    app.post("/other", dependencies=[Depends(RateLimit("1/minute", store=store))])(hello)
    assert await statuses(app, http(), http("/other"), http(), http("/other", method="POST")) == [200, 200, 429, 200]


async def test_one_instance_may_be_in_two_apps() -> None:
    """In each app it has the store and the key of the middleware there, in any order of requests."""
    shared = Depends(RateLimit("1/minute", name="in two apps"))
    alone, one, other = a_route(shared), within(a_route(shared)), within(a_route(shared), key=header("x-client"))
    clients = [[(b"x-client", name)] for name in (b"ann", b"bob")]
    expected = {"alone": [200, 429], "one": [200, 429], "again alone": [429, 429], "other": [200, 200]}
    apps = {"alone": alone, "one": one, "again alone": alone, "other": other}
    actual = {name: await statuses(app, *[http(headers=each) for each in clients]) for name, app in apps.items()}
    assert actual == expected


# Names


def names_of(events: list[Any]) -> list[str]:
    """The names under which each decision was charged."""
    return [charge.name for event in events for charge in event.decision.take.charges]


async def names(app: FastAPI, *scopes: Any) -> list[str]:
    """The names under which an app's limits charge these requests."""
    events: list[Any] = []
    within(app, hooks=[events.append])
    assert await statuses(app, *scopes) == [200] * len(scopes)
    return names_of(events)


async def test_a_limit_without_a_name_is_named_after_its_route() -> None:
    """By its methods and its whole path, with the names of its parameters and not their values."""
    leaf = APIRouter()
    leaf.get("/{number}", dependencies=[Depends(RateLimit("9/minute"))])(lambda number: number)
    leaf.api_route("/both", methods=["PUT", "POST"], dependencies=[Depends(RateLimit("9/minute"))])(hello)
    branch = APIRouter(prefix="/branch")
    branch.include_router(leaf, prefix="/leaf")
    app = FastAPI()
    app.include_router(branch, prefix="/v1")
    app.mount("/inner", a_route(Depends(RateLimit("9/minute"))))
    scopes = [
        http("/v1/branch/leaf/1"),
        http("/v1/branch/leaf/2"),
        http("/v1/branch/leaf/both", method="PUT"),
        http("/inner/"),
    ]
    assert await names(app, *scopes) == [
        *["GET /v1/branch/leaf/{number}"] * 2,
        "POST PUT /v1/branch/leaf/both",
        "GET /inner/",
    ]


async def test_several_without_a_name_on_one_route_are_numbered() -> None:
    """Those that stand together as well; one with a name keeps it."""
    together = RateLimit.together(RateLimit("9/minute"), RateLimit("8/hour", name="own"), RateLimit("7/day"))
    app = a_route(Depends(RateLimit("9/minute")), Depends(RateLimit("6/s", name="first")), Depends(together))
    assert await names(app, http()) == ["GET /", "first", "GET / 2", "own", "GET / 3"]


SEVERAL = (
    r"RateLimit\(.*\) is used on several routes, such as 'GET /a' and 'GET /b', and needs a name: "
    r'RateLimit\("5/minute", name="login"\)'
)


def on_two_routes(limiting: Any, of_app: bool = False) -> FastAPI:
    app = FastAPI(dependencies=[limiting] if of_app else [])
    for path in ("/a", "/b"):
        app.get(path, dependencies=[] if of_app else [limiting])(hello)
    return app


@pytest.mark.parametrize("of_app", [True, False])
@pytest.mark.parametrize("wrap", [lambda app: app, within], ids=["alone", "within"])
async def test_one_that_stands_on_several_routes_needs_a_name(of_app: bool, wrap: Any) -> None:
    """The first request raises, on any of the routes."""
    for path in ("/a", "/b"):
        with pytest.raises(ConfigurationError, match=SEVERAL):
            await ask(wrap(on_two_routes(limit(), of_app)), http(path))
    assert await statuses(wrap(on_two_routes(limit(name="both"), of_app)), http("/a"), http("/b")) == [200, 200]


async def test_its_key_is_a_parameter_of_a_route() -> None:
    """One that no route has would limit nobody."""
    limiting = limit(name="items", key=combine(path_param("id")))
    with pytest.raises(ConfigurationError, match=r"path_param\('id'\) needs a parameter {id}, which no route of RateL"):
        await ask(on_two_routes(limiting), http("/a"))
    app = on_two_routes(limiting)
    app.get("/c/{id:int}", dependencies=[limiting])(hello)
    assert await statuses(app, http("/a"), http("/b")) == [200, 200]


async def test_one_on_no_route_needs_a_name() -> None:
    """It may be called by hand, then."""
    connection, response = Request(http()), PlainTextResponse()
    with pytest.raises(
        ConfigurationError, match='on no route, and needs a name: RateLimit\\("5/minute", name="login"\\)'
    ):
        await RateLimit("1/minute")(connection, response)
    decision = await RateLimit("1/minute", name="by hand", store=a_store())(connection, response)
    assert decision is not None
    assert decision.allowed


# Key, cost, functions


async def test_key_and_cost_are_as_in_rules() -> None:
    """Functions included, and those may be asynchronous."""

    async def cost(connection: Any) -> int:
        return int(connection.query_params["n"])

    app = a_route(limit(lambda connection: "10/minute", key=header("x-client"), cost=cost))
    ann, bob = ([(b"x-client", name)] for name in (b"ann", b"bob"))
    assert left(await ask(app, http(headers=ann, query_string=b"n=4"))) == '"per-minute";r=6'
    assert (await ask(app, http(headers=ann, query_string=b"n=7"))).status == 429
    assert left(await ask(app, http(headers=bob, query_string=b"n=7"))) == '"per-minute";r=3'
    assert (await ask(app, http())).headers.get("ratelimit") is None


@pytest.mark.parametrize("around", [None, "no quota", "a quota", "a function"])
@pytest.mark.parametrize("on_error", [None, "allow", "deny"])
async def test_a_quota_that_fails(around: str | None, on_error: Any) -> None:
    """It is answered with 503, unless ``on_error`` lets it pass, or the quota of the middleware has limited it."""

    def broken(connection: Any) -> str:
        raise LookupError

    app = a_route(Depends(RateLimit(broken, on_error=on_error)))
    quotas = {"no quota": None, "a quota": "100/minute", "a function": lambda request: "100/minute"}
    peer = await ask(app if around is None else within(app, quotas[around]))
    is_limited = on_error is None and around == "a quota"
    assert peer.status == (200 if on_error == "allow" or is_limited else 503)
    if peer.status == 503:
        assert peer.headers["retry-after"] == "1"
        assert peer.problem["type"].endswith("#temporary-reduced-capacity")


async def test_a_quota_that_fails_follows_that_of_the_middleware() -> None:
    """Also where a file of limits has changed it."""
    app = RateLimitMiddleware(a_route(Depends(RateLimit(lambda request: str(1 / 0)))))
    assert (await ask(app)).status == 503
    app.options_changed(replace(USUAL, quota="100/minute"))
    assert (await ask(app)).status == 200


# The answers


@pytest.mark.parametrize("wrap", [lambda app: app, within], ids=["alone", "within"])
async def test_a_refusal_is_that_of_the_middleware(wrap: Any) -> None:
    """The same problem, and the same headers."""
    app, other = wrap(a_route(limit("1/minute"))), limited(ok, "1/minute")
    for _ in range(2):
        peer, expected = await ask(app), await ask(other)
    assert (peer.status, expected.status, len(peer.starts)) == (429, 429, 1)
    assert (peer.headers, peer.problem) == (expected.headers, expected.problem)


async def test_the_middleware_gives_key_store_dialect_and_answer() -> None:
    """A dependency without its own has those of the middleware, whose quota applies as well."""
    app = a_route(Depends(RateLimit("2/minute", name="route")))
    within(app, "10/minute", key=header("x-client"), headers="both", on_limited=lambda *_: JSONResponse("slow", 429))
    ann, bob = (http(headers=[(b"x-client", name)]) for name in (b"ann", b"bob"))
    assert left(await ask(app, ann)) == '"per-minute";r=9, "route per-minute";r=1'
    assert (await ask(app, bob)).headers["x-ratelimit-remaining"] == "1"
    assert await statuses(app, ann, ann, bob) == [200, 429, 200]
    assert (await ask(app, ann)).body == b'"slow"'


async def test_exempt_clients_are_not_limited_by_dependencies() -> None:
    """The ``allow`` list of the middleware is for the whole app."""
    app = a_route(Depends(RateLimit("1/minute")))
    within(app, allow=lambda connection: "x-office" in connection.headers)
    office = http(headers=[(b"x-office", b"1")])
    assert await statuses(app, office, office, http(), http()) == [200, 200, 200, 429]
    assert "ratelimit" not in (await ask(app, office)).headers


async def test_the_innermost_middleware_counts_for_dependencies() -> None:
    """Its ``allow``, key, store and ``on_limited``, also where another one is around it."""
    app, own = a_route(Depends(RateLimit("1/minute", name="route"))), {"error": "slow down"}
    allow, answer = (lambda connection: "x-office" in connection.headers), (lambda connection, decision: own)
    within(app, allow=allow, key=header("x-user"), on_limited=answer)
    outer = RateLimitMiddleware(app, "99/minute")
    office, ann, bob = (http(headers=[(b"x-user", name), (b"x-" + name, b"")]) for name in (b"office", b"ann", b"bob"))
    assert await statuses(outer, office, office, ann, bob, ann) == [200, 200, 200, 200, 429]
    assert (await ask(outer, ann)).problem == own


async def test_a_limit_keeps_no_app_alive() -> None:
    """Nor its store: a test may make one for each of its cases."""
    shared, stores = RateLimit("9/minute", name="shared"), list[Any]()
    for _ in range(3):
        app = a_route(Depends(shared))
        app.add_middleware(RateLimitMiddleware, store=(store := a_store()))
        assert await statuses(app, http()) == [200]
        stores.append(ref(store))
        del app, store
    gc.collect()
    assert [each() for each in stores] == [None] * 3


async def test_a_rule_that_exempts_a_path_does_not_exempt_its_dependencies() -> None:
    """Such a rule is about the limits of the middleware only, which do not stand in for one whose quota fails."""
    for quota, expected in (("1/minute", [200, 429]), (lambda connection: "no quota", [503, 503])):
        app = within(a_route(Depends(RateLimit(quota))), "10/minute", rules=[Rule("/", None)])
        assert await statuses(app, http(), http()) == expected


# Several on one route


@pytest.mark.usefixtures("unpublished", "unwatched")
async def test_several_may_be_one_call_to_the_store(redis_url: str, redis_server: RedisServer) -> None:
    """By address, by user and for all: together they are one take, and Redis runs one script for each request."""
    store = RedisStore(redis_url, timeout=20)
    together = RateLimit.together(
        RateLimit("9/hour", name="address", store=store),
        RateLimit("5/hour", name="user", key=header("x-user"), store=store),
        RateLimit("2/day", name="all", key=lambda connection: "all", store=store),
    )
    app = a_route(Depends(together))
    ann = http(headers=[(b"x-user", b"ann")])
    assert left(await ask(app, ann)) == '"per-hour";r=8, "user per-hour";r=4, "per-day";r=1'
    before = script_calls(redis_server)
    bob, eve = (http(headers=[(b"x-user", name)]) for name in (b"bob", b"eve"))
    assert await statuses(app, bob, eve) == [200, 429]
    assert script_calls(redis_server) - before == 2
    await store.aclose()


async def test_any_of_one_name_may_answer_for_them() -> None:
    """As where the first of several that share a name has no ``on_limited``."""
    second = RateLimit("1/minute", name="n", key=lambda _: "all", on_limited=lambda *_: JSONResponse("own", 429))
    app = a_route(Depends(RateLimit.together(RateLimit("1/minute", name="n"), second)))
    assert [(await ask(app)).body for _ in range(2)][1] == b'"own"'


@pytest.mark.parametrize(
    ("limits", "quote"),
    [
        ([], r"not \(\): RateLimit.together"),
        ([RateLimit("1/s"), RateLimit("1/s", store=MemoryStore())], "are taken together, not"),
        ([RateLimit("1/s", name="odds"), RateLimit("2/s", name="odds")], "different quotas named 'per-second'"),
    ],
    ids=["none", "two stores", "at odds"],
)
def test_limits_that_cannot_be_together_raise(limits: list[RateLimit], quote: str) -> None:
    """When the limits are put together."""
    with pytest.raises(ConfigurationError, match=quote):
        RateLimit.together(*limits)


# WebSocket


def a_socket(*dependencies: Any) -> FastAPI:
    app = FastAPI()

    @app.websocket("/", dependencies=dependencies)
    async def endpoint(session: WebSocket) -> None:
        await session.accept()
        await session.send_text("hello")
        await session.close()

    return app


@pytest.mark.parametrize("wrap", [lambda app: app, within], ids=["alone", "within"])
def test_a_websocket_route_is_limited(wrap: Any) -> None:
    """The handshake is answered with 429."""
    client = TestClient(wrap(a_socket(limit("1/minute"))))
    with client.websocket_connect("/") as session:
        assert session.receive_text() == "hello"
        with pytest.raises(WebSocketDisconnect):
            session.receive_text()
    with pytest.raises(WebSocketDenialResponse) as denied, client.websocket_connect("/"):
        raise AssertionError("was let in")
    assert denied.value.status_code == 429
    assert denied.value.headers["ratelimit"] == '"per-minute";r=0;t=60'
    assert denied.value.json()["violated-policies"] == ["per-minute"]


# OpenAPI


def test_openapi_documents_the_answer() -> None:
    """By the argument that FastAPI has for it."""
    app = FastAPI(responses=limited_responses())
    app.get("/")(hello)
    answer = app.openapi()["paths"]["/"]["get"]["responses"]["429"]
    assert set(answer["headers"]) == {"Retry-After", "RateLimit-Policy", "RateLimit"}
    assert "violated-policies" in json.dumps(answer["content"]["application/problem+json"])
