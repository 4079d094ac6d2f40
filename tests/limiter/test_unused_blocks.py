"""Blocks of limiters that take nothing: the second one on a line is told, and only that."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack
from typing import Any

import pytest

from asgi_ratelimit import Charge, Limiter, SyncLimiter, TokenBucket
from asgi_ratelimit.limiter import unused_blocks
from asgi_ratelimit.logs import warn_once

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def new_process() -> None:
    """Each test has all warnings, as in a process of its own."""
    warn_once.cache_clear()
    unused_blocks._lines.clear()


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each for each in caplog.messages if "#a-block-that-limits-nothing" in each]


async def test_a_block_in_the_place_of_a_call(caplog: pytest.LogCaptureFixture) -> None:
    """It is told once, with its line, its quota and the call that it lacks."""
    limiter = Limiter("2/s")
    for _ in range(6):
        async with limiter:
            pass
    (message,) = told(caplog)
    assert re.search(
        rf"{re.escape(__file__)}:\d+ limits nothing: .*\"2/second\".*: await limiter\.acquire\(key\) ", message
    )


def test_a_block_of_a_new_limiter_without_async(caplog: pytest.LogCaptureFixture) -> None:
    """Each call has one of its own, on one line."""
    for number in range(3):
        assert len(told(caplog)) == (number == 2)
        with SyncLimiter("5/s"):
            pass
    assert ": limiter.acquire(key) " in told(caplog)[0]


async def test_a_single_block_is_that_of_an_app(caplog: pytest.LogCaptureFixture) -> None:
    """It may have had no request; so may those of a stack, or the block has failed."""
    async with Limiter("2/s"):
        pass
    async with AsyncExitStack() as stack:
        for _ in range(3):
            await stack.enter_async_context(Limiter("2/s"))
    with ExitStack() as stack_without_async:
        for _ in range(3):
            stack_without_async.enter_context(SyncLimiter("2/s"))
    for _ in range(3):
        with pytest.raises(KeyError):
            async with Limiter("2/s"):
                raise KeyError
    assert told(caplog) == []


@pytest.mark.parametrize(
    "call",
    [
        lambda limiter: limiter.rate_limit("key"),
        lambda limiter: limiter.pace("key"),
        lambda limiter: limiter.acquire("key"),
        lambda limiter: limiter.peek("key"),
        lambda limiter: limiter.eta("key"),
        lambda limiter: limiter.waiting("key"),
        lambda limiter: limiter.reserve("key"),
        lambda limiter: limiter.reset("key"),
        lambda limiter: limiter.spend("key", 1).__aenter__(),
        lambda limiter: limiter.take([Charge(TokenBucket(5), "key")]),
    ],
    ids=["rate_limit", "pace", "acquire", "peek", "eta", "waiting", "reserve", "reset", "spend", "take"],
)
async def test_a_block_with_any_call(
    call: Callable[[Limiter], Awaitable[Any]], caplog: pytest.LogCaptureFixture
) -> None:
    """It has a use for its limiter."""
    for _ in range(3):
        async with Limiter("5/s") as limiter:
            await call(limiter)
    assert told(caplog) == []


async def test_a_block_that_gives_back(caplog: pytest.LogCaptureFixture) -> None:
    """What another limiter of the same name has taken."""
    booked = Limiter("5/s burst 5", name="jobs")
    for method in ("refund", "cancel", "settle"):
        decision = await booked.pace("key")
        for _ in range(3):
            async with Limiter("5/s burst 5", name="jobs", store=booked.store) as limiter:
                await getattr(limiter, method)(decision, *([1] if method == "settle" else []))
    text = str(await booked.reserve("key"))
    for _ in range(3):
        async with Limiter("5/s burst 5", name="jobs", store=booked.store) as limiter:
            await limiter.redeem(text)
    assert told(caplog) == []


async def test_a_call_before_the_block(caplog: pytest.LogCaptureFixture) -> None:
    """Somebody takes from the limiter, there or elsewhere."""
    limiter = Limiter("5/s")
    await limiter.rate_limit("key")
    for _ in range(3):
        async with limiter:
            pass
    assert told(caplog) == []
