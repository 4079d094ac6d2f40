"""Functions of the program: wrong ones are refused at once; what they return; and what happens when they fail."""

from __future__ import annotations

import inspect
import logging
import re
from decimal import Decimal
from functools import partial, wraps
from typing import Annotated, Any

import pytest
import redis.asyncio
from anyio import lowlevel
from fastapi import Depends, FastAPI, Header, Request, security
from starlette.requests import HTTPConnection

from asgi_ratelimit import ConfigurationError, MemoryStore, Penalty, RateLimit, RateLimitMiddleware, RedisStore, Rule
from asgi_ratelimit.keys import client_ip, combine, header, path_param, state
from asgi_ratelimit.logs import FailureLog
from asgi_ratelimit.quotas import FixedWindow, TokenBucket
from tests.support.asgi import ask, http, limited, ok, websocket
from tests.support.names import named
from tests.support.server import free_port

pytestmark = pytest.mark.anyio


# Wrong ones


def by_header(x_user: Annotated[str, Header()]) -> str:
    return x_user


def by_default(token: str = Depends(ok)) -> str:
    return token


def by_value(plan: str) -> str:
    return plan


def by_second(request: Request, db: Annotated[str, Depends(ok)] = "") -> str:
    return db


KEY = 'key=client_ip(), key=lambda request: request.user.id, or RateLimit("5/minute", key=Depends(current_user_id))'

# Arguments of a middleware, of a rule and of a dependency, and what the error says.
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"key": client_ip}, f"key is a function of the connection, not {client_ip!r}: {KEY}"),
    ({"key": Depends}, "not Depends(dependency, use_cache, "),
    ({"key": combine}, "not combine(keys): key=client_ip()"),
    ({"key": lambda: "k"}, "not <lambda>(): key=client_ip()"),
    ({"key": by_header}, "not by_header(x_user): key=client_ip()"),
    ({"key": by_second}, "not by_second(request, db): "),
    ({"key": combine(client_ip(), by_header)}, "not by_header("),
    ({"key": security.APIKeyHeader(name="x-key")}, "key is a function of the connection, not <fastapi.security"),
    ({"quota": FixedWindow(5, 60, name="penalty-block")}, "the name 'penalty-block' of a quota is reserved"),
    ({"cost": lambda: 1}, "cost is a function of the connection, not <lambda>(): cost=lambda request: 5"),
    ({"cost": by_default}, "not by_default("),
    ({"key": by_value}, "not by_value(plan): key=client_ip()"),
    ({"quota": header("x-plan")}, "quota is a function of the connection, not header('x-plan'): quota=lambda"),
    ({"cost": path_param("id")}, "cost is a function of the connection, not path_param('id'): cost=lambda"),
    ({"on_error": "explode"}, "not 'explode'"),
    ({"max_delay": -1}, "max_delay must be seconds from 0 to 400 days, not -1: max_delay=2.0"),
    ({"penalty": 600}, 'Penalty("10 minutes", after=5)'),
]

OF_MIDDLEWARE: list[tuple[dict[str, Any], str]] = [
    ({"rules": Rule("/", "1/s")}, "rules=[Rule("),
    ({"rules": 7}, "rules are a list of Rule, not 7: rules=[Rule("),
    ({"rules": ["1/s"]}, "not ('1/s',): rules=[Rule("),
    ({"key": Depends(ok)}, 'or RateLimit("5/minute", key=Depends(current_user_id))'),
    ({"on_limited": lambda request: None}, "of the connection and the decision, not <lambda>(request): on_limited="),
    ({"allow": lambda: True}, "not <lambda>(): allow=client_ip().within"),
    ({"allow": security.APIKeyHeader(name="x-key")}, "allow=client_ip().within"),  # it would allow any made-up key
    ({"deny": 7}, "not 7: deny=client_ip().within"),
    ({"hooks": [print, 7]}, "not 7"),
    ({"max_waiting": 0}, "max_waiting must be a number of requests, at least 1, not 0: max_waiting=1000"),
    ({"store": MemoryStore}, "store=MemoryStore lacks its call: store=MemoryStore()"),
    ({"store": redis.asyncio.Redis(password="secret")}, "which has no take: store=MemoryStore(), "),
]


@pytest.mark.parametrize(("options", "quote"), WRONG, ids=range(len(WRONG)))
def test_wrong_arguments(options: Any, quote: str) -> None:
    """They are refused when a middleware or a dependency is built, and of a rule, which is named as well."""
    for build in (partial(RateLimitMiddleware, ok), RateLimit, partial(Rule, "/login")):
        with pytest.raises(ValueError, match=re.escape(quote)) as caught:
            build(**{"quota": "1/s", **options})
    assert "in Rule('/login'" in "".join(caught.value.__notes__)


@pytest.mark.parametrize(("options", "quote"), OF_MIDDLEWARE, ids=range(len(OF_MIDDLEWARE)))
def test_wrong_arguments_of_a_middleware(options: Any, quote: str) -> None:
    """Those that rules and dependencies do not have."""
    with pytest.raises(ConfigurationError, match=re.escape(quote)):
        RateLimitMiddleware(ok, **{"quota": "1/s", **options})


@pytest.mark.parametrize("settle", [lambda: 0, lambda status: 0, lambda a, b, c, d: 0, dict, 7], ids=range(5))
def test_wrong_settle_functions(settle: Any) -> None:
    """They take the status and the headers, and perhaps the bytes."""
    with pytest.raises(ConfigurationError, match="settle=lambda status, headers:"):
        Rule("/", "1/s", settle=settle)


def test_a_dependency_that_lacks_its_call() -> None:
    """It is refused where FastAPI reads its parameters, which tools can read, too."""
    with pytest.raises(ConfigurationError, match=re.escape("Depends(RateLimit) without its call, lacks")):
        FastAPI().get("/", dependencies=[Depends(RateLimit)])(lambda: "hello")
    assert list(inspect.signature(RateLimit).parameters)[:3] == ["quota", "key", "cost"]


# Right ones


class StaffBearer(security.HTTPBearer):
    """One that checks what it gets, as a function of the request does."""

    async def __call__(self, request: Request) -> Any:
        credentials = await super().__call__(request)
        return credentials is not None and credentials.credentials == "from your settings"


def of_request(request: Annotated[Request, "the request"], plan: str = "free") -> str:
    return f"{request.url.path} {plan}"


def unreadable(request: NoSuchName) -> str:  # type: ignore[name-defined]  # noqa: F821
    return "k"


@wraps(by_second)
def with_db(request: Request) -> Any:
    return by_second(request, "db")


RIGHT = [client_ip(), of_request, unreadable, with_db, StaffBearer(), partial(lambda a, b: "k", "a"), lambda *all: "k"]


@pytest.mark.parametrize("key", [*RIGHT, combine(header("a"), lambda request, more=1: "k")], ids=named)
def test_functions_that_can_be_called_are_fine(key: Any) -> None:
    """With defaults and annotations of any kind, partially applied, decorated, or of the package."""
    RateLimitMiddleware(ok, "1/s", key=key)
    RateLimit("1/s", key=key)


# What they return


PRO = [(b"x-tier", b"pro")]


def rules(*each: Rule, own: Any = None, **options: Any) -> RateLimitMiddleware:
    return limited(ok, own, rules=each, **options)


def tier(connection: HTTPConnection) -> str:
    return "100/minute" if connection.headers.get("x-tier") == "pro" else "10/minute"


async def tier_after_a_while(connection: HTTPConnection) -> str:
    await lowlevel.checkpoint()
    return tier(connection)


@pytest.mark.parametrize("quota", [tier, tier_after_a_while], ids=["sync", "async"])
async def test_a_quota_may_depend_on_the_connection(quota: Any) -> None:
    """A tier for each user. The bucket is the same after an upgrade: what was used stays used."""
    for app in (limited(ok, quota), rules(Rule("/", quota))):
        assert (await ask(app)).headers["ratelimit"] == '"per-minute";r=9;t=6'
        assert (await ask(app, http(headers=PRO))).headers["ratelimit"].startswith('"per-minute";r=98')


async def test_what_is_no_limit() -> None:
    """A quota of ``None`` and a cost of 0 exempt from their rule, and not from the others."""
    app = rules(Rule("/", lambda connection: None), Rule("/", "5/s", cost=lambda connection: 0.0), own="10/minute")
    assert (await ask(app)).headers["ratelimit"] == '"per-minute";r=9;t=6'
    assert (await ask(limited(ok, lambda connection: None))).headers == {"x-own": "1"}


async def test_a_function_is_called_once_for_each_request() -> None:
    """However many rules use it: with a request, or the connection of a handshake."""
    seen = []

    def key(connection: Any) -> str:
        seen.append(connection.scope["type"] if type(connection) is HTTPConnection else connection.method)
        return "k"

    app = rules(Rule("/", "20/minute"), Rule("/{rest:path}", "30/minute"), own="10/minute", key=key)
    assert (await ask(app)).headers["ratelimit"].count(";r=") == 3
    await ask(app, websocket())
    assert seen == ["GET", "websocket"]


async def test_a_function_that_reads_the_body_is_told_what_can(caplog: pytest.LogCaptureFixture) -> None:
    """The body has not come yet."""

    async def by_account(request: Request) -> Any:
        return (await request.json())["account"]

    await ask(limited(ok, "2/minute", key=by_account))
    assert "a dependency reads it: RateLimit(key=Depends(account))" in caplog.text


# When they fail: tests/inbound/test_attacks.py has what passes then


def breaks(*arguments: Any) -> Any:
    raise LookupError("no such user")


async def test_nobody_passes_a_quota_that_fails_and_denies() -> None:
    """The answer is 503, nothing is charged, and a handshake is closed with 1013."""
    app = rules(Rule("/", breaks, on_error="deny"), own="10/minute")
    peer = await ask(app)
    assert (peer.status, peer.headers["retry-after"]) == (503, "1")
    assert peer.problem["type"].endswith("#temporary-reduced-capacity")
    assert "ratelimit" not in peer.headers
    assert [message.get("code") for message in (await ask(app, websocket())).sent] == [1013]
    assert (await ask(app, http("/other"))).headers["ratelimit"] == '"per-minute";r=9;t=6'


async def test_the_own_quota_limits_where_that_of_a_rule_fails_which_decides_alone() -> None:
    """At its own cost and by its own key, once, with its own penalty and wait."""
    rule = Rule("/", breaks, only=True, key=lambda request: "one for all", cost=7)
    for option, after in ({"penalty": Penalty("1 hour")}, "3600"), ({"max_delay": 4}, "8"):
        app = rules(rule, own="5/minute", cost=2, **option)
        answers = [await ask(app) for _ in range(3)]
        assert [answer.headers.get("retry-after") for answer in answers] == [None, None, after]
        assert answers[0].headers["ratelimit"] == '"per-minute";r=3;t=12'
        assert (await ask(app, http(client=("192.0.2.2", 1)))).status == 200


@pytest.mark.parametrize(("on_error", "status"), [(None, 503), ("local", 503), ("deny", 503), ("allow", 200)])
async def test_the_on_error_of_a_rule_counts_before_that_of_the_middleware(on_error: Any, status: int) -> None:
    """A rule in shadow refuses nobody, whatever it says."""
    assert (await ask(rules(Rule("/", breaks), on_error=on_error))).status == status
    assert (await ask(rules(Rule("/", breaks, on_error=on_error), on_error="deny"))).status == (
        status if on_error else 503
    )
    assert (await ask(rules(Rule("/", breaks, shadow=True), on_error=on_error))).status == 200


async def test_a_key_that_fails_is_the_address() -> None:
    """Also if the package's own key fails, for what an app has put there; it is equal to no key of the program."""

    def user_of(request: Any) -> str:
        return {b"of mallory": "203.0.113.9"}[dict(request.scope["headers"]).get(b"x-session")]

    app = limited(ok, "1/hour", key=user_of)
    assert (await ask(app, http(headers=[(b"x-session", b"of mallory")]))).status == 200
    assert [(await ask(app, http(client=("203.0.113.9", 1)))).status for _ in range(2)] == [200, 429]
    app = rules(Rule("/", tier, key=state("tenant"), name="tenant"), own="20/minute")
    peer = await ask(app, http(state={"tenant": object()}))
    assert re.findall('"([a-z -]+)";r=', peer.headers["ratelimit"]) == ["per-minute", "tenant per-minute"]


async def test_a_cost_that_fails_is_the_base_cost(caplog: pytest.LogCaptureFixture) -> None:
    """The middleware's own, if that is a number, or 1."""
    texts: Any = lambda request: "3"  # noqa: E731
    for cost, left, function in ((Decimal(2), 3, breaks), (lambda request: 2, 4, texts)):
        answer = await ask(rules(Rule("/", "5/minute", name="tier", cost=function), own="10/minute", cost=cost))
        assert f'"tier per-minute";r={left};' in answer.headers["ratelimit"]
    assert "a cost is a number from 0 up, not '3': cost=lambda request: 5" in caplog.text


async def test_more_than_one_take_may_charge_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    """The log says why: no limit is off because there are too many of them."""
    many = [TokenBucket(100, 60, name=f"q{number}") for number in range(40)]
    for quotas in (many, lambda request: many):
        assert (await ask(rules(Rule("/", many, name="a"), Rule("/", quotas, name="b")))).status == 503
    assert len(caplog.messages) == 2
    assert all("a take has at most 50 charges" in message for message in caplog.messages)


async def test_a_failure_is_logged_at_most_once_a_minute(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the name of the rule, the error and the count, for each function of each rule."""
    now = 0.0
    monkeypatch.setattr(FailureLog.__init__, "__defaults__", (60e6, lambda: now))
    app = rules(Rule("/", "5/minute", key=breaks), Rule("/", breaks, name="tier"), own="10/minute")
    for _ in range(3):
        await ask(app)
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 2
    assert "key function of 'default /' failed, the client's address is the key: LookupError" in caplog.messages[0]
    assert "quota function of 'tier' failed, requests are limited by 'default' instead" in caplog.messages[1]
    assert caplog.records[0].exc_info is not None
    now = 60e6
    for _ in range(3):
        await ask(app)
    assert len(caplog.messages) == 4
    assert "(3 times since the last report)" in caplog.messages[2]


@pytest.mark.parametrize(
    ("own", "of_rule", "only", "statuses"),
    [
        (None, "deny", False, [503] * 3),
        ("allow", None, False, [200] * 3),
        ("allow", "local", False, [200, 200, 429]),
        ("deny", "allow", False, [503] * 3),
        ("deny", "allow", True, [200] * 3),
        (None, "deny", True, [503] * 3),
    ],
)
async def test_the_strictest_rule_decides_without_the_store(
    own: Any, of_rule: Any, only: bool, statuses: list[int]
) -> None:
    """A rule has the middleware's on_error unless it has its own, and a request is decided as one."""
    store = RedisStore(f"redis://127.0.0.1:{free_port()}")
    rule = Rule("/", "2/minute", only=only, on_error=of_rule)
    app = RateLimitMiddleware(ok, "10/minute", rules=[rule], store=store, on_error=own)
    assert [(await ask(app)).status for _ in range(3)] == statuses


# Rules that are only tried out


async def test_a_shadow_rule_is_counted_and_not_enforced() -> None:
    """Everybody passes, no header speaks of it, and its decisions say what would have been."""
    events = []
    app = rules(Rule("/", "1/minute", shadow=True, name="new"), own="10/minute", hooks=[events.append])
    answers = [await ask(app) for _ in range(3)]
    assert [peer.status for peer in answers] == [200] * 3
    assert answers[-1].headers["ratelimit"] == '"per-minute";r=7;t=6'
    tried = [event.decision for event in events if event.decision.shadow]
    assert [decision.allowed for decision in tried] == [True, False, False]
    assert tried[0].charges[0].name == "new"
    alone = rules(Rule("/", "1/minute", shadow=True))
    assert [(await ask(alone)).headers for _ in range(3)] == [{"x-own": "1"}] * 3


@pytest.mark.parametrize(
    "options", [{"only": True}, {"quota": None}, {"quota": breaks}], ids=["only", "exempt", "fails"]
)
async def test_a_shadow_rule_takes_nothing_away_from_others(options: dict[str, Any]) -> None:
    """While it is tried out, a rule that would stand alone, exempt or fail changes nothing for the others."""
    app = rules(Rule("/", **{"quota": "1/minute", "on_error": "deny", **options, "shadow": True}), own="10/minute")
    assert (await ask(app)).headers["ratelimit"] == '"per-minute";r=9;t=6'
