"""The log of refusals: structured, sampled, and without keys unless asked."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from asgi_ratelimit import ConfigurationError, Limiter, MemoryStore, RateLimitMiddleware, RedisStore, Rule
from asgi_ratelimit.hooks import log_refusals
from asgi_ratelimit.testing import SteppedClock
from tests.support.asgi import ask, http
from tests.support.server import HOST

pytestmark = pytest.mark.anyio


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """What a handler for machines finds in a record."""
    return {name: value for name, value in vars(record).items() if name in (*FIELDS, "key")}


FIELDS = ("rule", "quota", "route", "method", "retry_after", "unlogged")


async def test_a_refusal_is_a_line_with_fields(caplog: pytest.LogCaptureFixture) -> None:
    """The rule, quota, route, method and the seconds until the next try; not the key."""
    app = RateLimitMiddleware(
        Starlette(routes=[Route("/users/{id}", PlainTextResponse("user"))]),
        rules=[Rule("/users/{id}", "1/minute", name="users")],
        store=MemoryStore(clock=SteppedClock()),
        hooks=[log_refusals()],
    )
    for _ in range(2):
        await ask(app, http("/users/7"))
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("asgi_ratelimit.refusals", logging.WARNING)
    assert fields_of(record) == dict(zip(FIELDS, ("users", "per-minute", "/users/{id}", "GET", 60.0, 0)))
    assert record.getMessage() == (
        "refused: rule='users' quota='per-minute' route='/users/{id}' method='GET' retry_after=60.0 unlogged=0"
    )
    assert "192.0.2.1" not in str(vars(record))


async def test_refusals_are_sampled(caplog: pytest.LogCaptureFixture) -> None:
    """At most one line a second for each rule, which counts those since the last."""
    clock = SteppedClock()
    hook = log_refusals(clock=clock)
    limiters = [Limiter("1/hour", name=name, hooks=[hook]) for name in ("first", "second")]
    lines = []
    for seconds in (0.999, 0.001, 5.0, 0.0):
        for limiter in limiters:
            for _ in range(4):
                await limiter.rate_limit("alice", 2)
        lines.append([(fields_of(record)["rule"], fields_of(record)["unlogged"]) for record in caplog.records])
        caplog.clear()
        clock.advance(seconds)
    unlogged = [[0], [], [7], [3]]
    assert lines == [[(name, count) for name in ("first", "second") for count in counts] for counts in unlogged]


async def test_keys_are_logged_only_where_asked(caplog: pytest.LogCaptureFixture) -> None:
    """At the level that was asked for, too; a call that never fits has no time to come back."""
    caplog.set_level(logging.INFO)
    limiter = Limiter("1/hour", hooks=[log_refusals(level=logging.INFO, keys=True, every=0)])
    await limiter.rate_limit("alice", 2)
    (record,) = caplog.records
    assert record.levelno == logging.INFO
    assert fields_of(record)["key"] == "alice"
    assert fields_of(record)["retry_after"] is None
    assert "key='alice'" in record.getMessage()


@pytest.mark.parametrize("options", [{"every": -1}, {"every": "1"}, {"level": "INFO"}], ids=str)
def test_what_cannot_be_is_refused(options: Any) -> None:
    """The error quotes it, and shows a valid one."""
    ((name, value),) = options.items()
    with pytest.raises(ConfigurationError, match=rf"{name} must be .*{value!r}: log_refusals\({name}="):
        log_refusals(**options)


async def test_a_refusal_in_an_outage_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """No quota has refused it, unless its cost would never fit."""
    store = RedisStore(f"redis://{HOST}:1", on_error="deny")
    async with Limiter("5/minute", name="mail", store=store, hooks=[log_refusals(every=0)]) as limiter:
        caplog.clear()
        await limiter.rate_limit("alice")
        await limiter.rate_limit("alice", 7)
    outage, by_quota = [record for record in caplog.records if record.name == "asgi_ratelimit.refusals"]
    assert outage.getMessage() == "refused, because the store is out: rule='mail' retry_after=1.0 unlogged=0"
    assert fields_of(outage)["quota"] is None
    assert by_quota.getMessage() == "refused: rule='mail' quota='per-minute' unlogged=0"
