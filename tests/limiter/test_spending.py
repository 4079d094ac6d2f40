"""``spend``: costs that are known only afterwards, taken as an estimate and settled at the end of a block."""

from __future__ import annotations

import asyncio
import contextlib
import re
from decimal import Decimal
from typing import Any

import pytest

from asgi_ratelimit import Limiter, MemoryStore, PaceTimeout, SyncLimiter, TokenBucket
from asgi_ratelimit.testing import SteppedClock

QUOTAS = [TokenBucket(10, 60, burst=10, name="requests"), TokenBucket(1000, 60, burst=1000, name="tokens")]


@pytest.fixture
def limiter(clock: SteppedClock) -> Limiter:
    """Ten requests and a thousand tokens a minute."""
    return Limiter(QUOTAS, store=MemoryStore(clock=clock))


async def left(limiter: Limiter) -> list[int]:
    """What is left of each quota."""
    return [state.remaining for state in (await limiter.peek("key")).states]


@pytest.mark.parametrize(
    ("settled", "remaining"),
    [
        ([], [9, 400]),
        ([{"tokens": 250}], [9, 750]),
        ([{"tokens": 900}], [9, 100]),
        ([{"requests": 0, "tokens": 0}], [10, 1000]),
        ([{"tokens": Decimal(250)}], [9, 750]),
    ],
    ids=repr,
)
def test_what_was_used_is_settled_at_the_end(
    clock: SteppedClock, limiter: Limiter, settled: list[dict[str, float]], remaining: list[int]
) -> None:
    """Less is refunded, more is debited, the last call counts, and without one the estimate stays."""

    async def main() -> None:
        async with limiter.spend("key", {"requests": 1, "tokens": 600}) as spent:
            assert await left(limiter) == [9, 400]
            for units in settled:
                spent.settle(**units)
            assert await left(limiter) == [9, 400]
        assert await left(limiter) == remaining

    clock.run(main())


def test_it_waits_for_all_or_takes_none(clock: SteppedClock, limiter: Limiter) -> None:
    """Both quotas are charged at the same moment, or none; a wait beyond ``max_delay`` raises."""

    async def main() -> None:
        async with limiter.spend("key", {"requests": 1, "tokens": 1000}):
            pass
        with pytest.raises(PaceTimeout):
            async with limiter.spend("key", {"requests": 1, "tokens": 500}, max_delay=20):
                pass
        assert (await left(limiter), clock.now) == ([9, 0], 0.0)
        async with limiter.spend("key", {"requests": 1, "tokens": 500}) as spent:
            assert clock.now == spent.decision.ready_at == 30.0

    clock.run(main())


@pytest.mark.parametrize("ends", ["error", "cancelled", "closed"])
def test_it_is_settled_however_it_ends(clock: SteppedClock, limiter: Limiter, ends: str) -> None:
    """With the cost so far: after an error, a cancellation, or a stream that its reader leaves."""

    async def stream() -> Any:
        async with limiter.spend("key", {"requests": 1, "tokens": 600}) as spent:
            spent.settle(tokens=50)
            yield "first words"
            if ends == "error":
                raise KeyError
            await asyncio.sleep(60)

    async def read() -> None:
        async for _ in words:
            if ends == "closed":
                break
        await words.aclose()

    async def main() -> None:
        reading = asyncio.ensure_future(read())
        await asyncio.sleep(0)
        if ends == "cancelled":
            reading.cancel()
        await asyncio.wait([reading])
        assert await left(limiter) == [9, 950]

    words = stream()
    clock.run(main())


@pytest.mark.parametrize(
    ("wrong", "says"), [({"tokns": 5}, r"\['tokns'\]"), ({"tokens": -1}, "-1"), ({"tokens": "5"}, "'5'")], ids=repr
)
def test_a_cost_that_is_not_valid_raises(
    clock: SteppedClock, limiter: Limiter, wrong: dict[str, float], says: str
) -> None:
    """At the call; the cost that was set before still counts."""

    async def main() -> None:
        async with limiter.spend("key", {"requests": 1, "tokens": 600}) as spent:
            spent.settle(tokens=5)
            with pytest.raises(ValueError, match=says):
                spent.settle(**wrong)
        assert await left(limiter) == [9, 995]

    clock.run(main())


def test_one_number_does_not_fit_different_costs(clock: SteppedClock, limiter: Limiter) -> None:
    """It could be that of any quota. The error shows how to name one; 0 gives everything back."""

    async def main() -> None:
        async with limiter.spend("key", {"requests": 1, "tokens": 600}) as spent:
            with pytest.raises(ValueError, match=re.escape("settle({'tokens': 313})")):
                spent.settle(313)
        assert await left(limiter) == [9, 400]
        async with limiter.spend("other", {"requests": 1, "tokens": 600}) as spent:
            spent.settle(0)
        assert [state.remaining for state in (await limiter.peek("other")).states] == [10, 1000]

    clock.run(main())


def test_without_async_it_is_the_same(clock: SteppedClock) -> None:
    """It waits, and settles, also after an error."""
    limiter = SyncLimiter(QUOTAS, store=MemoryStore(clock=clock))
    with contextlib.suppress(KeyError), limiter.spend("key", {"requests": 1, "tokens": 600}) as spent:
        spent.settle(tokens=900)
        raise KeyError
    with limiter.spend("key", {"tokens": 400}):
        assert clock.now == 18.0
