"""Keys that never come, which are warned of whatever they are; that make no sense; and that are very long."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from fastapi import Depends, FastAPI, Request

from asgi_ratelimit import Charge, MemoryStore, RateLimit, Rule
from asgi_ratelimit.keys import combine, cookie, first_of, header, state, user
from asgi_ratelimit.testing import SteppedClock
from tests.support.asgi import ask, http, limited, ok
from tests.support.names import named

pytestmark = pytest.mark.anyio

ANN = [(b"x-api-key", b"ann")]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [message for message in caplog.messages if "docs/warnings.md#a-key-that-never-comes" in message]


async def no_key(request: Any) -> None:
    return None


KEYS = [user(), state("user_id"), header("x-api-key"), cookie("session"), lambda request: None, no_key]
KEYS += [combine(header("x-api-key"), state("tenant")), first_of(user(), header("x-api-key"))]
NOTHING = [*[{"key": key} for key in KEYS], {"quota": no_key}, {"cost": lambda request: 0}]


@pytest.mark.parametrize("options", NOTHING, ids=named)
async def test_a_key_that_never_comes(options: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    """For every kind of key, quota and cost, after 100 requests that the rule matches, with its name and the remedy."""
    app = limited(ok, "999/minute", rules=[Rule("/a", **{"quota": "5/minute", "name": "each user", **options})])
    for number in range(100):
        await ask(app, http("/b"))
        assert warnings(caplog) == [], number
        await ask(app, http("/a"))
    (warning,) = warnings(caplog)
    assert "the key of 'each user', " in warning
    assert " for the first 100 requests" in warning
    assert "is its name right, do clients send it, and is it set before the limit runs" in warning
    await ask(app, http("/a"))
    assert len(warnings(caplog)) == 1


@pytest.mark.parametrize("first", [0, 50, 99])
@pytest.mark.parametrize(
    "options",
    [
        {"quota": "9999/minute", "key": header("x-api-key")},
        {"quota": lambda request: "9999/minute", "key": header("x-api-key")},
        {"quota": "9999/minute", "rules": [Rule("/", "9999/hour", key=header("x-api-key"))]},
    ],
    ids=["one charge", "function", "rules"],
)
async def test_one_key_is_enough(first: int, options: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    """A rule that had a key once is never warned of, however many requests have none."""
    app = limited(ok, **options)
    for number in range(220):
        await ask(app, http(headers=ANN if number == first else []))
    assert warnings(caplog) == []


# Keys of dependencies


def user_app(value: Any, *more: Any, **options: Any) -> FastAPI:
    """An app with a limit by what a dependency returns."""
    app = FastAPI()

    def current_user(request: Request) -> Any:
        return value(request)

    limit = RateLimit("1/minute", key=Depends(current_user), store=MemoryStore(clock=SteppedClock()), **options)
    app.get("/", dependencies=[Depends(limit), *more])(lambda: "hello")
    return app


async def test_a_key_from_a_dependency() -> None:
    """Each user has a bucket; one without a key is not limited."""
    app = user_app(lambda request: request.headers.get("x-api-key"))
    bob = [(b"x-api-key", b"bob")]
    scopes = [http(headers=headers) for headers in (ANN, ANN, bob, [], [])]
    assert [(await ask(app, scope)).status for scope in scopes] == [200, 429, 200, 200, 200]


class User:
    """What an app knows of a user."""

    def __repr__(self) -> str:
        return "secret"


async def test_a_dependency_that_returns_no_key(caplog: pytest.LogCaptureFixture) -> None:
    """The address is the key, and the log says what to return, without showing the user."""
    app = user_app(lambda request: User())
    assert [(await ask(app)).status for _ in range(2)] == [200, 429]
    assert "a key function's result is of type User, but a key is a str" in caplog.text
    assert "secret" not in caplog.text
    await ask(user_app(lambda request: request.client))
    assert "is of type Address, but a key is a str, bytes, an int, a UUID or None: client_ip()" in caplog.text


async def test_no_key_of_a_program_is_equal_to_an_address_that_stands_in() -> None:
    """So nobody uses up the bucket of clients whose key fails."""
    app = limited(ok, "1/minute", key=lambda request: {"a": "\x00192.0.2.1"}[request.headers["x"]])
    assert [(await ask(app, http(headers=[(b"x", user)]))).status for user in (b"a", b"a", b"b")] == [200, 429, 200]


def test_a_dependency_is_no_key_of_a_rule() -> None:
    """A middleware runs before all dependencies; the error says where it can be."""
    with pytest.raises(ValueError, match=r'RateLimit\("5/minute", key=Depends\(current_user_id\)\)'):
        limited(ok, rules=[Rule("/", "1/s", key=Depends(no_key))])
    with pytest.raises(ValueError, match="names no dependency"):
        RateLimit("1/s", key=Depends())


# Keys that make no sense, or are very long


@pytest.mark.parametrize("client", [5, (["192.0.2.1"], 1)], ids=["no pair", "no text"])
async def test_a_client_that_makes_no_sense_fails_like_any_key(client: Any, caplog: pytest.LogCaptureFixture) -> None:
    """All such requests share one bucket, and the log says so."""
    app = limited(ok, "1/hour")
    assert [(await ask(app, {**http(), "client": client})).status for _ in range(2)] == [200, 429]
    assert "the key function of 'default' failed" in caplog.text


async def test_no_long_key_stays_in_memory_and_no_app_that_is_dropped() -> None:
    """A client cannot fill the memory with long keys. What is kept of short ones goes with the app."""
    app = limited(ok, "10/minute", key=lambda request: request.headers["x-key"])
    peers = [await ask(app, http(headers=[(b"x-key", b"kept" * times)])) for times in (1, 1, 2048, 2048)]
    assert [peer.headers["ratelimit"] for peer in peers[1::2]] == ['"per-minute";r=8;t=6'] * 2
    assert {len(each.key) for each in gc.get_objects() if type(each) is Charge and "kept" in each.key} == {4}
    del app
    gc.collect()
    assert not [each for each in gc.get_objects() if type(each) is Charge and "kept" in each.key]


async def test_a_cost_function_need_not_have_a_hash() -> None:
    """A plan keeps takes by keys and costs. Without a key, no cost is asked for."""
    cost: Any = type("Cost", (list,), {"__call__": lambda self, request: 2})()
    app = limited(ok, "5/hour", cost=cost, key=header("x-key"))
    peers = [await ask(app, http(headers=[(b"x-key", b"k")] * number)) for number in (1, 0, 1, 1)]
    assert [peer.status for peer in peers] == [200, 200, 200, 429]
