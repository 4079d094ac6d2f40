"""Hooks: they see every decision, and change none."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from fastapi import Depends, FastAPI

from asgi_ratelimit import (
    ConfigurationError,
    Limiter,
    Limits,
    PaceTimeout,
    RateLimit,
    RateLimitMiddleware,
    SyncLimiter,
    limits,
)
from asgi_ratelimit.hooks import Event, Hooks
from tests.support.asgi import ask, limited, ok

pytestmark = pytest.mark.anyio


async def test_a_hook_is_told_of_every_decision() -> None:
    """Of those that pass and those that are refused, by which limiter."""
    told: list[Event] = []
    app = limited(ok, "1/minute", name="api", hooks=[told.append])
    for _ in range(2):
        await ask(app)
    assert [(event.name, event.decision.allowed) for event in told] == [("api", True), ("api", False)]


async def test_a_hook_is_told_of_what_is_decided_further_in() -> None:
    """By a dependency, and by what an endpoint charges."""
    told: list[Event] = []
    app = FastAPI()
    app.add_middleware(RateLimitMiddleware, "10/minute", hooks=[told.append])

    @app.get("/", dependencies=[Depends(RateLimit("5/minute"))])
    async def endpoint(request: Annotated[Limits, Depends(limits)]) -> None:
        await request.charge(4)
        await request.charge(4)

    assert (await ask(app)).status == 429
    assert [event.decision.allowed for event in told] == [True, True, True, False]


async def test_a_limiter_tells_its_hooks_of_every_take() -> None:
    """Limiting, pacing, spending and waiting in vain; to look, and to give back, decides nothing."""
    told: list[Event] = []
    limiter = Limiter("1/hour", name="jobs", hooks=[told.append])
    first = await limiter.rate_limit("alice")
    assert await limiter.peek("alice") not in [event.decision for event in told]
    await limiter.refund(first)
    async with limiter.spend("alice", 1):
        pass
    with pytest.raises(PaceTimeout) as caught:
        await limiter.spend("alice", 1, max_delay=1).__aenter__()
    refused = await limiter.pace("alice", max_delay=1)
    assert [event.name for event in told] == ["jobs"] * 4
    assert [event.decision.allowed for event in told] == [True, True, False, False]
    assert told[2].decision is caught.value.decision
    assert told[3].decision is refused


def test_a_limiter_without_async_tells_its_hooks_too() -> None:
    """The same ones."""
    told: list[Event] = []
    decision = SyncLimiter("1/hour", hooks=[told.append]).rate_limit("alice")
    assert told == [Event("default", decision)]


async def test_an_event_cannot_be_changed() -> None:
    """It is frozen, and all hooks get the same one."""
    told: list[Event] = []
    await ask(limited(ok, hooks=[told.append, told.append]))
    assert told[0] is told[1]
    with pytest.raises(AttributeError):
        told[0].name = "other"  # type: ignore[misc]


async def test_a_hook_that_fails_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """The request passes, the other hooks are told, and the log says so once."""
    told: list[Event] = []

    def broken(event: Event) -> None:
        raise LookupError("no such gauge")

    app = limited(ok, hooks=[broken, told.append])
    assert [(await ask(app)).status for _ in range(3)] == [200] * 3
    assert len(told) == 3
    assert len(caplog.messages) == 1
    assert "no such gauge" in caplog.messages[0]


@pytest.mark.parametrize("hook", ["print", None, 7])
def test_what_cannot_be_called_is_told_at_start_up(hook: Any) -> None:
    """... quoted, with what to write."""
    with pytest.raises(ConfigurationError, match="a hook is a function"):
        RateLimitMiddleware(ok, "1/s", hooks=[hook])


def test_no_hooks_are_false() -> None:
    """So that nothing is done for them."""
    assert not Hooks([])
    assert Hooks([print])
