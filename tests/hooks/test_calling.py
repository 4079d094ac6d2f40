"""Hooks: they are called with every decision, and change none."""

from __future__ import annotations

import re
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
    limits,
)
from asgi_ratelimit.hooks import Event, Failure, failures, log_refusals
from tests.support.asgi import ask, limited, ok

pytestmark = pytest.mark.anyio


async def test_a_hook_is_called_with_decisions_inside_the_app() -> None:
    """Those of a dependency, and those of charges that an endpoint makes."""
    events: list[Event] = []
    app = FastAPI()
    app.add_middleware(RateLimitMiddleware, "10/minute", hooks=[events.append])

    @app.get("/", dependencies=[Depends(RateLimit("5/minute"))])
    async def endpoint(request: Annotated[Limits, Depends(limits)]) -> None:
        await request.charge(4)
        await request.charge(4)

    assert (await ask(app)).status == 429
    assert [event.decision.allowed for event in events] == [True, True, True, False]


async def test_a_limiter_calls_its_hooks_with_every_take() -> None:
    """Limiting, pacing, spending, and a spending that times out; peeking and refunding are no decisions."""
    events: list[Event] = []
    limiter = Limiter("1/hour", name="jobs", hooks=[events.append])
    first = await limiter.rate_limit("alice")
    assert await limiter.peek("alice") not in [event.decision for event in events]
    await limiter.refund(first)
    async with limiter.spend("alice", 1):
        pass
    with pytest.raises(PaceTimeout) as caught:
        await limiter.spend("alice", 1, max_delay=1).__aenter__()
    refused = await limiter.pace("alice", max_delay=1)
    assert [event.name for event in events] == ["jobs"] * 4
    assert [event.decision.allowed for event in events] == [True, True, False, False]
    assert events[2].decision is caught.value.decision
    assert events[3].decision is refused


class Seen:
    """A hook that is made by a call."""

    def __call__(self, event: Event) -> None: ...


@pytest.mark.parametrize("hook", [log_refusals, Seen])
def test_a_hook_that_lacks_its_call_is_refused_at_start_up(hook: Any) -> None:
    """It would make a new hook of each event, and count nothing."""
    with pytest.raises(ConfigurationError, match=rf"lacks its call: hooks=\[{hook.__name__}\(\)\]"):
        RateLimitMiddleware(ok, "1/s", hooks=[hook])


@pytest.mark.parametrize("hook", ["print", None, 7])
def test_a_hook_that_is_not_callable_is_refused_at_start_up(hook: Any) -> None:
    """The error quotes it, and shows a valid one."""
    with pytest.raises(ConfigurationError, match="a hook is a function"):
        RateLimitMiddleware(ok, "1/s", hooks=[hook])


@pytest.mark.parametrize("hooks", [None, 5, print], ids=["none", "a number", "a function"])
def test_hooks_that_are_not_several_are_refused_at_start_up(hooks: Any) -> None:
    """The error quotes the value, and shows a valid one."""
    with pytest.raises(ConfigurationError, match=rf"not {re.escape(repr(hooks))}: hooks=\[print\]"):
        RateLimitMiddleware(ok, "1/s", hooks=hooks)


async def test_hooks_for_failures_that_fail(caplog: pytest.LogCaptureFixture) -> None:
    """The request passes, the other hooks are called, and the error is logged."""
    counted: list[Failure] = []

    class Gauge:
        """A hook for both, whose text changes with each call."""

        calls = 0

        def __repr__(self) -> str:
            return f"Gauge({self.calls})"

        def __call__(self, event: Event) -> None:
            self.calls += 1
            raise LookupError(f"no such gauge: {event.name}")

        def failed(self, failure: Failure) -> None:
            counted.append(failure)
            raise LookupError("no such counter")

    def key(request: Any) -> str:
        raise KeyError("user")

    app = limited(ok, key=key, hooks=[Gauge(), failures(counted.append)])
    assert [(await ask(app)).status for _ in range(3)] == [200] * 3
    assert len(counted) == 6
    assert counted[0] == Failure("default", "key", counted[0].error)
    assert len([message for message in caplog.messages if "no such gauge" in message]) == 1
    assert len([message for message in caplog.messages if "no such counter" in message]) == 1


def test_a_hook_for_failures_that_is_not_callable_is_refused() -> None:
    """At once, with a valid one."""
    with pytest.raises(ConfigurationError, match=r"not 7: hooks=\[failures\(print\)\]"):
        failures(7)  # type: ignore[arg-type]
