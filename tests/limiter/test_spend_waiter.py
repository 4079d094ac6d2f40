"""Callers that wait to spend: who goes when, what wakes them, and what becomes of those that give up."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asgi_ratelimit import Decision, Limiter, MemoryStore, PaceTimeout, RedisStore, Store
from asgi_ratelimit.quotas import FixedWindow, Quota, RollingWindow, TokenBucket
from asgi_ratelimit.testing import SteppedClock
from asgi_ratelimit.waiting.waiter import waiters_of
from tests.support.counting import CountingStore
from tests.support.histories import Ledger
from tests.support.late_stores import SlowStore

MINUTE = TokenBucket(60, 60, burst=60)
KINDS = [MINUTE, FixedWindow(60, 60), RollingWindow(60, 60)]


async def spend(limiter: Limiter, cost: float, actual: float | None = None, *, seconds: float = 0.0) -> float:
    """Spend an estimate in a block of so many seconds, at an actual cost; returns when the block began."""
    clock = limiter.store.clock  # type: ignore[attr-defined]  # it is a MemoryStore
    async with limiter.spend("key", cost) as spent:
        began: float = clock.now
        await asyncio.sleep(seconds)
        if actual is not None:
            spent.settle(actual)
    return began


def nobody_waits(limiter: Limiter) -> bool:
    """Whether no caller is left in any queue."""
    waiters = waiters_of(limiter.store)
    return not waiters.turns and not waiters.units


def test_a_settlement_wakes_the_first_caller(clock: SteppedClock) -> None:
    """At the same moment, whichever verb gives the units back."""
    limiter = Limiter(MINUTE, store=MemoryStore(clock=clock))
    verbs: list[Callable[[Decision], Awaitable[None]]] = [
        limiter.refund,
        limiter.cancel,
        lambda decision: limiter.settle(decision, 1),
        lambda decision: limiter.reset("key"),
    ]

    async def main() -> None:
        for give_back in verbs:
            decision = await limiter.rate_limit("key", 60)
            waiting = asyncio.ensure_future(spend(limiter, 40, 0))
            await asyncio.sleep(0.25)
            now = clock.now
            await give_back(decision)
            assert await waiting == now
            await limiter.reset("key")

    clock.run(main())


def test_units_that_another_process_gives_back_are_seen_within_a_second(clock: SteppedClock) -> None:
    """The first caller looks once a second; the others do not."""
    store = CountingStore(clock=clock)
    limiter = Limiter(MINUTE, store=store)

    async def main() -> None:
        decision = await limiter.rate_limit("key", 60)
        waiting = [asyncio.ensure_future(spend(limiter, 60, 0)) for _ in range(1000)]
        await asyncio.sleep(20.5)
        assert store.takes <= 25
        await store.reset(decision.take.charges)
        assert await waiting[0] <= 21.5
        await asyncio.gather(*waiting)

    clock.run(main())
    assert store.takes <= 25 + 2 * 1000


async def timeout_of(limiter: Limiter, cost: float, max_delay: float) -> tuple[float, Decision]:
    """When a caller gave up, and its refusal."""
    with pytest.raises(PaceTimeout) as raised:
        async with limiter.spend("key", cost, max_delay=max_delay):
            pass
    return limiter.store.clock.now, raised.value.decision  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", [MemoryStore, SlowStore])
@pytest.mark.parametrize("quota", KINDS[1:], ids=["fixed", "rolling"])
def test_a_cost_that_never_fits_raises_at_once(clock: SteppedClock, quota: Quota, kind: type[MemoryStore]) -> None:
    """However long the caller would wait."""
    limiter = Limiter(quota, store=kind(clock=clock))
    when, decision = clock.run(timeout_of(limiter, 61, 1e9))
    assert when < 1.0
    assert decision.retry_after == float("inf")


def test_a_settlement_that_crosses_a_refusal_is_not_missed(clock: SteppedClock) -> None:
    """The refusal is on its way while the units come back: the caller looks again at once."""
    limiter = Limiter(MINUTE, store=SlowStore(clock=clock))

    async def main() -> None:
        decision = await limiter.rate_limit("key", 60)
        waiting = asyncio.ensure_future(spend(limiter, 60))
        await asyncio.sleep(0.15)  # its first take was refused, the second one is under way
        await limiter.refund(decision)
        assert await waiting == pytest.approx(0.4)

    clock.run(main())


def test_while_a_block_is_under_way_a_caller_waits_as_long_as_it_may(clock: SteppedClock) -> None:
    """Its end may give back enough; when the time is over, the first caller and those behind it give up."""
    limiter = Limiter(MINUTE, store=MemoryStore(clock=clock))

    async def main() -> None:
        block = asyncio.ensure_future(spend(limiter, 60, 0, seconds=25))
        await asyncio.sleep(0)
        early = [asyncio.ensure_future(timeout_of(limiter, 30, 20.0)) for _ in range(2)]
        late = asyncio.ensure_future(spend(limiter, 30))
        refused = await asyncio.gather(*early)
        assert [(when, decision.retry_after) for when, decision in refused] == [(20.0, 10.0)] * 2
        assert (await block, await late) == (0.0, 25.0)

    clock.run(main())


def test_a_large_cost_is_not_starved_by_small_ones(clock: SteppedClock) -> None:
    """Others that do not queue take what comes free: after a while it books its slot ahead."""
    limiter = Limiter(MINUTE, store=MemoryStore(clock=clock))

    async def others() -> None:
        while True:
            with contextlib.suppress(PaceTimeout):
                await limiter.rate_limit("key", 1)
            await asyncio.sleep(0.5)

    async def main() -> float:
        await limiter.rate_limit("key", 60)
        small = asyncio.ensure_future(others())
        began = await spend(limiter, 50)
        small.cancel()
        return began

    assert clock.run(main()) <= 50 + 40 + 50 + 5  # to be served, at most 40 s of patience, and for its slot


@given(st.data())
def test_every_caller_is_served_and_the_promise_holds(data: st.DataObject) -> None:
    """For the actual costs, whoever comes, settles, gives up or is cancelled."""
    quota = data.draw(
        st.sampled_from([TokenBucket(10, 10, burst=5), FixedWindow(10, 10), RollingWindow(10, 10, buckets=10)])
    )
    clock = SteppedClock(0)
    limiter, ledger, served = Limiter(quota, store=MemoryStore(clock=clock)), Ledger(quota), list[int]()
    seconds = st.sampled_from([0.0, 0.3, 1.0, 7.0])
    calls = st.tuples(seconds, st.integers(1, 5), st.integers(0, 5), seconds, st.none() | seconds)
    plan = data.draw(st.lists(calls, min_size=1, max_size=12))

    async def call(number: int, cost: int, actual: int, lasts: float, patience: float | None) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience), limiter.spend("key", cost) as spent:
                served.append(number)
                spent.settle(min(cost, actual))
                if spent.actual[0]:
                    ledger.admit(clock.now_us(), int(spent.actual[0]))
                await asyncio.sleep(lasts)

    async def main() -> None:
        tasks = []
        for number, (gap, *rest) in enumerate(plan):
            await asyncio.sleep(gap)
            tasks.append(asyncio.ensure_future(call(number, *rest)))
        await asyncio.gather(*tasks)

    clock.run(main())
    ledger.require_ceiling()
    assert served == sorted(served)
    assert {number for number, (*_, patience) in enumerate(plan) if patience is None} <= set(served)
    assert nobody_waits(limiter)


def test_a_take_that_is_under_way_when_its_caller_is_cancelled_is_given_back(redis_url: str) -> None:
    """On Redis, whose answer comes too late; the caller behind it goes."""

    async def call(limiter: Limiter, cost: float) -> None:
        async with limiter.spend("key", cost):
            pass

    async def main() -> None:
        store: Store = RedisStore(redis_url, timeout=30, on_error="deny")
        async with Limiter("60/hour", store=store) as limiter:
            cancelled, behind = (asyncio.ensure_future(call(limiter, 60)) for _ in range(2))
            await asyncio.sleep(0)
            cancelled.cancel()
            async with asyncio.timeout(60):
                await asyncio.wait([cancelled, behind])
            assert cancelled.cancelled()
            assert behind.exception() is None

    asyncio.run(main())


@pytest.mark.parametrize("leaving", [[0], [1], [0, 1, 2], [3]], ids=str)
def test_a_caller_that_is_cancelled_leaves_nobody_behind(clock: SteppedClock, leaving: list[int]) -> None:
    """The callers behind it move up, and nothing stays taken."""
    limiter = Limiter(MINUTE, store=MemoryStore(clock=clock))

    async def main() -> list[float]:
        await limiter.rate_limit("key", 60)
        waiting = [asyncio.ensure_future(spend(limiter, 10)) for _ in range(4)]
        await asyncio.sleep(5)
        for number in leaving:
            waiting[number].cancel()
        return [began for began in await asyncio.gather(*waiting, return_exceptions=True) if isinstance(began, float)]

    assert clock.run(main()) == [10.0 * number for number in range(1, 5 - len(leaving))]
    assert nobody_waits(limiter)
