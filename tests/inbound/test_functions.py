"""Arguments of the wrong kind: refused when they are given, with the mend in the error."""

from __future__ import annotations

import inspect
import re
from functools import partial, wraps
from typing import Annotated, Any

import pytest
import redis.asyncio
from fastapi import Depends, FastAPI, Header, Request, security

from asgi_ratelimit import (
    ConfigurationError,
    FixedWindow,
    Limiter,
    MemoryStore,
    RateLimit,
    RateLimitMiddleware,
    RedisStore,
    Rule,
    TokenBucket,
    client_ip,
    pace,
)
from asgi_ratelimit.keys import combine, first_of, header
from tests.support.asgi import ok
from tests.support.names import named


def by_header(x_user: Annotated[str, Header()]) -> str:
    return x_user


def by_default(token: str = Depends(ok)) -> str:
    return token


def by_second(request: Request, db: Annotated[str, Depends(ok)] = "") -> str:
    return db


def by_two(x_user: Annotated[str, Header()], other: int) -> str:
    return x_user


def of_request(request: Annotated[Request, "the request"], plan: str = "free") -> str:
    return f"{request.url.path} {plan}"


class StaffKey(security.APIKeyHeader):
    """One that has no call of its own."""


class StaffBearer(security.HTTPBearer):
    """One that checks what it gets, as a function of the request does."""

    async def __call__(self, request: Request) -> Any:
        credentials = await super().__call__(request)
        return credentials is not None and credentials.credentials == "from your settings"


SCHEMES = [
    security.APIKeyHeader(name="x-key"),
    security.APIKeyQuery(name="key"),
    security.APIKeyCookie(name="key"),
    security.HTTPBasic(),
    security.HTTPBearer(),
    security.HTTPDigest(),
    security.OAuth2PasswordBearer("token"),
    security.OpenIdConnect(openIdConnectUrl="url"),
    StaffKey(name="x-staff"),
]

WRONG = [
    ({"key": client_ip}, "key=client_ip lacks its call: key=client_ip(...)"),
    ({"key": header}, "key=header lacks its call"),
    ({"key": combine}, "key=combine lacks its call"),
    ({"key": "ip"}, "not 'ip': key=client_ip()"),
    ({"key": ""}, "not '': key=client_ip()"),
    ({"key": lambda: "k"}, "which <lambda>() does not take: key=client_ip()"),
    ({"key": lambda one, two: "k"}, "which <lambda>(one, two) does not take"),
    ({"quota": lambda: "1/s"}, "does not take: quota=lambda request:"),
    ({"quota": lambda one, two: "1/s"}, "does not take: quota=lambda request:"),
    ({"quota": TokenBucket}, "quota=TokenBucket lacks its call"),
    ({"quota": FixedWindow(5, 60, name="penalty-block")}, "the name 'penalty-block' of a quota is reserved"),
    ({"quota": TokenBucket(5, name="pause")}, "the name 'pause' of a quota is reserved"),
    ({"cost": lambda: 1}, "does not take: cost=lambda request: 5"),
    ({"cost": int}, "cost=int lacks its call"),
    ({"cost": "2"}, "not '2'"),
    ({"key": by_header}, "key=by_header is a dependency of FastAPI, which nobody else can call: RateLimit("),
    ({"key": by_default}, "key=by_default is a dependency of FastAPI"),
    ({"key": by_second}, "key=by_second is a dependency of FastAPI"),
    ({"key": by_two}, 'nobody else can call: RateLimit("5/minute", key=Depends(current_user_id))'),
    ({"key": combine(client_ip(), by_header)}, "key=by_header is a dependency of FastAPI"),
    ({"key": first_of(combine(by_two, header("x")), client_ip())}, "key=by_two is a dependency of FastAPI"),
    (
        {"quota": by_header},
        "a dependency of FastAPI, which nobody else can call: quota=lambda request",
    ),
    (
        {"cost": by_default},
        "a dependency of FastAPI, which nobody else can call: cost=lambda request",
    ),
]
"""Arguments of a middleware, of a rule and of a dependency, and what the error says."""

OF_MIDDLEWARE = [
    ({"rules": Rule("/", "1/s")}, "rules=[Rule(...)]"),
    ({"rules": 7}, "rules are a list, not 7"),
    ({"rules": ["1/s"]}, "not of '1/s': rules=[Rule("),
    ({"key": Depends(ok)}, 'whose dependencies FastAPI calls: RateLimit("5/minute", key=Depends(current_user_id))'),
    ({"on_limited": lambda request: None}, "the connection and the decision, which <lambda>(request) does not take"),
    ({"on_limited": "no"}, "not 'no': on_limited=lambda"),
    ({"allow": lambda: True}, "does not take: allow=client_ip().within"),
    (
        {"allow": by_header},
        "a dependency of FastAPI, which nobody else can call: allow=client_ip().within",
    ),
    ({"on_limited": by_two}, "on_limited=by_two is a dependency of FastAPI"),
    ({"deny": 7}, "not 7: deny=client_ip().within"),
    ({"hooks": [print, 7]}, "not 7"),
]


class Incomplete:
    """A store that does not say whether its methods wait."""

    take = peek = settle = reset = aclose = print


STORES = [
    (redis.asyncio.Redis(password="secret"), "not a redis.asyncio.client.Redis, which has no take"),
    (MemoryStore, "store=MemoryStore lacks its call: store=MemoryStore()"),
    (object(), "which has no take: store=MemoryStore()"),
    (Incomplete(), "which has no in_process: store=MemoryStore()"),
    (b"redis://user:secret@host", "not a builtins.bytes, which has no take"),
]


def refused(quote: str) -> Any:
    return pytest.raises(ConfigurationError, match=re.escape(quote))


@pytest.mark.parametrize(("options", "quote"), [*WRONG, *OF_MIDDLEWARE])
def test_wrong_arguments_of_a_middleware(options: Any, quote: str) -> None:
    """They are refused when it is built."""
    error = ValueError if "cost" in options else ConfigurationError
    with pytest.raises(error, match=re.escape(quote)):
        RateLimitMiddleware(ok, **{"quota": "1/s", **options})


@pytest.mark.parametrize(("options", "quote"), WRONG)
def test_wrong_arguments_of_a_rule(options: Any, quote: str) -> None:
    """The rule is named as well."""
    with pytest.raises(ValueError, match=re.escape(quote)) as caught:
        RateLimitMiddleware(ok, rules=[Rule("/login", **{"quota": "1/s", **options})])
    assert "in Rule('/login'" in "".join(caught.value.__notes__)


@pytest.mark.parametrize(("options", "quote"), WRONG)
def test_wrong_arguments_of_a_dependency(options: Any, quote: str) -> None:
    """At import."""
    with pytest.raises(ValueError, match=re.escape(quote)):
        RateLimit(**{"quota": "1/s", **options})


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: type(scheme).__name__)
@pytest.mark.parametrize("called", [lambda scheme: scheme, lambda scheme: scheme.__call__], ids=["itself", "method"])
def test_security_schemes_of_fastapi_are_no_functions(scheme: Any, called: Any) -> None:
    """They return whatever a client sends, and check nothing: a made-up credential would switch a limit off."""
    function = called(scheme)
    for name in ("allow", "deny", "cost"):
        with refused("is a dependency of FastAPI, which nobody else can call: " + name):
            RateLimitMiddleware(ok, "1/s", **{name: function})
    for key in (function, combine(client_ip(), function), first_of(function, client_ip())):
        with refused("is a dependency of FastAPI, which nobody else can call: RateLimit("):
            RateLimit("1/s", key=key)
        with refused("is a dependency of FastAPI, which nobody else can call: RateLimit("):
            RateLimitMiddleware(ok, rules=[Rule("/", "1/s", key=key)])
    with refused("is a dependency of FastAPI, which nobody else can call: quota"):
        RateLimit(function)


def test_a_security_scheme_may_be_a_key_within_depends() -> None:
    """There, FastAPI calls it; and one with a call of its own is a function of the request."""
    RateLimit("1/s", key=Depends(SCHEMES[0]))
    RateLimitMiddleware(ok, "1/s", allow=StaffBearer())


def test_annotations_and_defaults_that_are_not_of_fastapi() -> None:
    """A function of the request may have them, and one whose annotations cannot be read is not refused."""

    def unreadable(request: Request) -> str:
        return request.url.path

    unreadable.__annotations__["request"] = "NoSuchName"
    for key in (of_request, unreadable):
        RateLimit("1/s", key=key)


def test_decorated_functions_are_judged_as_they_are_called() -> None:
    """By their own parameters, or by those of the function to which they pass all that they get."""

    def with_prefix(function: Any) -> Any:
        @wraps(function)
        def supplied(request: Request) -> Any:
            return function(request, "prefix")

        return supplied

    def traced(function: Any) -> Any:
        @wraps(function)
        def passing(*args: Any) -> Any:
            return function(*args)

        return passing

    RateLimit("1/s", key=with_prefix(lambda request, prefix: prefix))
    RateLimit("1/s", key=with_prefix(by_second))
    RateLimit("1/s", key=traced(of_request))
    with refused("which <lambda>(one, two) does not take"):
        RateLimit("1/s", key=traced(lambda one, two: one))
    with refused("key=by_header is a dependency of FastAPI"):
        RateLimit("1/s", key=traced(by_header))


@pytest.mark.parametrize("settle", [lambda: 0, lambda status: 0, lambda a, b, c, d: 0, dict, 7], ids=range(5))
def test_wrong_settle_functions(settle: Any) -> None:
    """They take the status and the headers, and perhaps the bytes."""
    with refused("settle=lambda status, headers:"):
        RateLimitMiddleware(ok, rules=[Rule("/", "1/s", settle=settle)])


@pytest.mark.parametrize(("store", "quote"), STORES, ids=["client", "class", "object", "incomplete", "bytes"])
def test_wrong_stores(store: Any, quote: str) -> None:
    """For a middleware, a dependency and a paced function; a password never shows."""
    builders: list[Any] = [partial(RateLimitMiddleware, ok, "1/s"), partial(RateLimit, "1/s"), partial(pace, "1/s")]
    for build in builders:
        with refused(quote) as caught:
            build(store=store)
        assert "secret" not in str(caught.value)


def test_a_dependency_that_lacks_its_call() -> None:
    """It is refused where FastAPI reads its parameters."""
    with refused('Depends(RateLimit) lacks the call of RateLimit: Depends(RateLimit("5/minute"))'):
        FastAPI().get("/", dependencies=[Depends(RateLimit)])(lambda: "hello")


def test_tools_can_read_the_parameters_of_a_dependency() -> None:
    """Those of the class, as editors show them."""
    assert list(inspect.signature(RateLimit).parameters)[:3] == ["quota", "key", "cost"]
    assert inspect.getmembers(RateLimit)


@pytest.mark.parametrize(
    "key",
    [client_ip(), lambda request, more=1: "k", partial(lambda a, b: "k", "a"), combine(header("a"), lambda c: 1)],
    ids=named,
)
def test_functions_that_can_be_called_are_fine(key: Any) -> None:
    """With defaults, partially applied, or of the package."""
    RateLimitMiddleware(ok, "1/s", key=key)
    RateLimit("1/s", key=key)


def test_right_stores_are_fine() -> None:
    """A URL, a store of any kind, or none."""
    for store in (None, "memory://", MemoryStore(), RedisStore("redis://localhost")):
        RateLimitMiddleware(ok, "1/s", store=store)
    assert Limiter("1/s", store="memory://")
