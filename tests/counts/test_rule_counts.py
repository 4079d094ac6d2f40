"""What is counted of each rule."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asgi_ratelimit import RateLimitMiddleware, RedisStore, Store
from asgi_ratelimit.counts import BOUNDS_US, WaitTimes, counts_of
from asgi_ratelimit.decision import OnError
from tests.support.asgi import ask, ok

pytestmark = pytest.mark.anyio


def numbers(store: Store, name: str) -> tuple[int, ...]:
    """The counts of a rule: admitted, refused, shadowed, degraded, failed."""
    return tuple(counts_of(store).of_rule(name).numbers)


@pytest.mark.parametrize(("on_error", "counted"), [("local", (2, 1, 0, 3, 0)), ("deny", (0, 3, 0, 3, 0))])
async def test_what_is_decided_without_the_store(on_error: OnError, counted: tuple[int, ...]) -> None:
    """It counts once, as degraded, and as admitted or refused: also where all requests are refused."""
    store = RedisStore("redis://127.0.0.1:1", on_error=on_error)
    app = RateLimitMiddleware(ok, "2/minute; 9/hour", store=store, name="api")
    for _ in range(3):
        await ask(app)
    assert numbers(store, "api") == counted
    await store.aclose()


waits = st.lists(st.integers(0, 7_000_000), min_size=1)


def histogram(added: list[int]) -> WaitTimes:
    """A histogram of these waits."""
    times = WaitTimes()
    for wait_us in added:
        times.add(wait_us)
    return times


@given(waits, st.floats(0.01, 1.0))
def test_a_quantile_is_within_the_part_of_the_exact_one(added: list[int], share: float) -> None:
    """It is never further from the exact quantile than the bounds around that."""
    exact = sorted(added)[math.ceil(share * len(added)) - 1]
    lower = max([bound for bound in BOUNDS_US if bound <= exact], default=0)
    upper = min([bound for bound in BOUNDS_US if bound > exact], default=BOUNDS_US[-1])
    assert lower / 1e6 <= histogram(added).quantile(share) <= upper / 1e6
