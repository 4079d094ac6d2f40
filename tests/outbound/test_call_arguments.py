"""Keys and costs of ``@pace`` that depend on the arguments of a call."""

from __future__ import annotations

from typing import Any

import pytest

from asgi_ratelimit import ConfigurationError, TokenBucket, pace
from asgi_ratelimit.testing import SteppedClock
from tests.support.counting import CountingStore


def test_keys_come_from_arguments(store: CountingStore, clock: SteppedClock) -> None:
    """By name, whether they are passed by position, by keyword, or by default."""

    @pace("10/s", store=store, key=lambda guild, kind: f"{guild}/{kind}")
    def call(text: str, guild: str, *, kind: str = "chat") -> float:
        return clock.now

    assert [call("a", "one"), call("b", "two"), call("c", guild="one", kind="voice")] == [0.0, 0.0, 0.0]
    assert call(guild="one", text="d") == 0.1


def test_costs_come_from_arguments(store: CountingStore, clock: SteppedClock) -> None:
    """One cost for all quotas, or one for each quota by its name."""
    quotas = [TokenBucket(10, burst=1, name="requests"), TokenBucket(1000, burst=1000, name="tokens")]

    @pace(quotas, store=store, cost={"requests": 1, "tokens": lambda prompt: max(1, len(prompt))})
    def complete(prompt: str) -> float:
        return clock.now

    @pace("10/s", store=store, cost=lambda pages: max(1, len(pages)))
    def fetch(*pages: int) -> float:
        return clock.now

    assert [complete("x" * 900), complete("x" * 200), complete("x" * 500)] == [0.0, 0.1, 0.6]
    clock.move_to(10)
    assert [fetch(1), fetch(1, 2, 3), fetch(1)] == [10.0, 10.1, 10.4]


@pytest.mark.parametrize("wrong", [{"key": lambda: 5}, {"cost": lambda: 0}, {"key": lambda: 1 / 0}], ids=range(3))
def test_a_key_or_cost_that_is_not_valid_books_nothing(store: CountingStore, wrong: dict[str, Any]) -> None:
    """The exception reaches the caller."""
    called: list[int] = []
    call = pace("10/s", store=store, **wrong)(lambda: called.append(1))
    with pytest.raises((TypeError, ValueError, ZeroDivisionError)):
        call()
    assert (called, store.takes) == ([], 0)


async def with_async(guild: str) -> Any: ...


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"key": with_async}, "key cannot be async, as <function with_async"),
        ({"cost": {"per-second": with_async}}, "cost cannot be async, as"),
        ({"priority": with_async}, "priority cannot be async, as"),
        ({"key": lambda guid: guid}, "key needs guid, but a call has the arguments guild, text"),
        ({"cost": lambda guild, *rest: 1}, r"cost needs \*rest"),
        ({"cost": {"per-second": lambda size: size}}, "cost needs size"),
    ],
    ids=["async key", "async cost", "async priority", "key", "star", "mapping"],
)
def test_a_function_that_no_call_can_use_is_refused(wrong: dict[str, Any], says: str) -> None:
    """When it is decorated; the error shows a valid one."""

    def call(guild: str, text: str) -> None: ...

    with pytest.raises(ConfigurationError, match=says) as raised:
        pace("10/s", **wrong)(call)
    assert "lambda account: account.id" in str(raised.value)
