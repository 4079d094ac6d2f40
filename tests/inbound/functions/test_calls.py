"""Calls of functions: those that hold up the event loop are warned of once."""

from __future__ import annotations

from typing import Any

import pytest

from asgi_ratelimit import Rule, client_ip
from asgi_ratelimit.keys import combine
from asgi_ratelimit.logs import warn_once
from tests.support.asgi import ask, limited, ok

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def new_process() -> None:
    """Each test gets all warnings, as in a process of its own."""
    warn_once.cache_clear()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The nanoseconds of a clock that functions may move."""
    now = [0]
    monkeypatch.setattr("asgi_ratelimit.keys.base.monotonic_ns", lambda: now[0])
    return now


@pytest.mark.parametrize("place", ["quota", "key", "part of a key", "cost", "settle", "allow", "deny", "on_limited"])
async def test_a_function_that_blocks(place: str, clock: list[int], caplog: pytest.LogCaptureFixture) -> None:
    """One that takes more than 5 ms without async, with its name and the remedy, once."""

    def slow(*arguments: Any) -> Any:
        clock[0] += 5_000_001
        return {"quota": "1/hour", "key": "k", "part of a key": "k", "cost": 1, "settle": 1}.get(place)

    if place == "settle":
        app = limited(ok, "1/hour", rules=[Rule("/", "5/hour", settle=lambda status, headers: slow())])
    elif place == "part of a key":
        app = limited(ok, "1/hour", key=combine(client_ip(), slow))
    else:
        app = limited(ok, **{"quota": "1/hour", place: slow})
    for _ in range(3):
        await ask(app)
    (message,) = caplog.messages
    assert "more than 5 ms on the event loop" in message
    assert "test_a_function_that_blocks.<locals>." in message
    assert "(docs/warnings.md#a-function-that-blocks)" in message


async def test_functions_that_do_not_block(clock: list[int], caplog: pytest.LogCaptureFixture) -> None:
    """Those that are quick enough, and those that wait without blocking."""

    def quick(request: Any) -> str:
        clock[0] += 5_000_000
        return "k"

    async def waiting(request: Any) -> str:
        clock[0] += 50_000_000
        return "k"

    for key in (quick, waiting):
        await ask(limited(ok, key=key))
    assert caplog.messages == []
