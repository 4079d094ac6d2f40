"""Limiters that are made anew for each call, and so limit nothing: that is told, and only that."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Callable
from typing import Any
from unittest import mock

import httpx
import pytest

from asgi_ratelimit import Limiter, MemoryStore, PacedTransport, RedisStore, Store, SyncLimiter, open_store, pace
from asgi_ratelimit.limiter import made_per_call
from asgi_ratelimit.logs import warn_once
from asgi_ratelimit.testing import SteppedClock

KEPT: list[object] = []
SHARED = MemoryStore()


@pytest.fixture(autouse=True)
def new_process() -> None:
    """Each test has all warnings, as in a process of its own."""
    warn_once.cache_clear()
    made_per_call._place_at.cache_clear()
    KEPT.clear()


def limiter(quota: str = "1/minute", calls: int = 1, **options: Any) -> None:
    made = SyncLimiter(quota, **options)
    for _ in range(calls):
        made.rate_limit("key")


def limiter_with_async() -> None:
    asyncio.run(Limiter("1/minute", store="memory://").rate_limit("key"))


def transport() -> None:
    answer = httpx.MockTransport(lambda request: httpx.Response(200))
    with httpx.Client(transport=PacedTransport(answer, "1/minute")) as client:
        client.get("http://api.example.com/")


def paced_function() -> None:
    @pace("1/minute")
    def call() -> None: ...

    call()


def warnings(caplog: pytest.LogCaptureFixture, handle: Callable[[], None], times: int = 30) -> list[str]:
    """What is logged while ``handle`` is called so often, in a program that runs no tests."""
    with mock.patch.dict(os.environ):
        del os.environ["PYTEST_CURRENT_TEST"]
        call(handle, times)
    return logged(caplog)


def call(handle: Callable[[], None], times: int = 30) -> None:
    for _ in range(times):
        handle()
        gc.collect(0)


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "a-limiter-for-each-call" in record.getMessage()]


@pytest.mark.parametrize("handle", [limiter, limiter_with_async, transport, paced_function])
def test_what_is_made_for_each_call_is_told_once(handle: Callable[[], None], caplog: pytest.LogCaptureFixture) -> None:
    """With its quota and the line that makes it, and with the remedy."""
    (warning,) = warnings(caplog, handle)
    assert "1/minute" in warning
    assert f"{__file__}:" in warning
    assert "make it once, at module level" in warning


@pytest.mark.parametrize(
    "handle",
    [
        lambda: limiter("100/minute"),
        lambda: limiter("3/hour", calls=4),
        lambda: limiter(calls=0),
        lambda: limiter(store=SHARED),
        lambda: limiter(store=MemoryStore(clock=SteppedClock())),
        lambda: KEPT.append(SyncLimiter("1/minute")),
    ],
    ids=["within the limit", "used more often", "not used", "shared store", "stepped clock", "kept"],
)
def test_what_may_be_meant_is_not_told(handle: Callable[[], None], caplog: pytest.LogCaptureFixture) -> None:
    """Where one in their place would admit as much, where each is used more, where they share a store, or in a test."""
    assert warnings(caplog, handle) == []


@pytest.mark.parametrize("make_store", [MemoryStore, lambda: open_store("memory://")])
def test_a_store_that_is_made_for_each_call_is_told(
    make_store: Callable[[], Store], caplog: pytest.LogCaptureFixture
) -> None:
    """It limits as little as the memory that a limiter makes for itself."""
    (warning,) = warnings(caplog, lambda: limiter(store=make_store()))
    assert "1/minute" in warning
    assert "make it and its store once, at module level" in warning


def test_a_store_of_several_limiters_is_watched_once(caplog: pytest.LogCaptureFixture) -> None:
    """Only the first line that uses it is told."""

    def two_limits() -> None:
        store = MemoryStore()
        SyncLimiter("1/minute", store=store, name="one").rate_limit("key")
        SyncLimiter("1/minute", store=store, name="two").rate_limit("key")

    assert len(warnings(caplog, two_limits)) == 1


@pytest.mark.parametrize("make_store", [str, RedisStore])
def test_connections_for_each_call_are_told(
    make_store: Callable[[str], Store | str], redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Such limiters limit, but each opens connections, even where the limit is far away."""

    def ask() -> None:
        with SyncLimiter("1000/minute", store=make_store(redis_url)) as made:
            made.rate_limit("key")

    (warning,) = warnings(caplog, ask)
    assert "1000/minute" in warning
    assert "connections of its own" in warning
    assert "once, at module level" in warning


def test_a_store_without_weak_references_is_not_watched() -> None:
    """It is not known when it is gone."""

    class Slotted:
        __slots__ = ()
        in_process = True
        take = peek = settle = reset = aclose = lambda self: None

    Limiter("1/minute", store=Slotted())  # type: ignore[arg-type]


def test_few_are_not_told(caplog: pytest.LogCaptureFixture) -> None:
    """Such as those of a short script."""
    assert warnings(caplog, limiter, times=20) == []


def test_those_of_a_long_time_are_not_told(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as one for each job, every four seconds."""
    times = iter(range(0, 10**12, 4_000_000))
    monkeypatch.setattr(made_per_call, "monotonic_us", lambda: next(times))
    assert warnings(caplog, limiter) == []


def test_one_that_is_used_more_starts_the_count_again(caplog: pytest.LogCaptureFixture) -> None:
    """A place that makes limiters that last, such as one for each user, makes some for a single call, too."""
    calls = iter([1] * 15 + [4] + [1] * 14)
    assert warnings(caplog, lambda: limiter(calls=next(calls))) == []


def test_tests_are_not_told(caplog: pytest.LogCaptureFixture) -> None:
    """Each of them makes a limiter, and means it."""
    call(limiter)
    assert logged(caplog) == []
