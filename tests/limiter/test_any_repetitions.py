"""Callers that take one operation, whatever they do: its slot is charged once, and not given back."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asgi_ratelimit import Decision, Limiter, MemoryStore, PaceTimeout, Store, Take
from asgi_ratelimit.quotas import FixedWindow, Quota, RollingWindow, TokenBucket
from asgi_ratelimit.stores import Settled, Settlement
from asgi_ratelimit.stores.base import Decisions
from asgi_ratelimit.testing import SteppedClock
from tests.support.store_elsewhere import StoreElsewhere


class NotingStore(MemoryStore):
    """It notes the ids of all decisions that have charged anything, and of those that were given back.

    The charges of a decision may be given back one by one, but each of them only once.
    """

    def __init__(self, clock: SteppedClock) -> None:
        super().__init__(clock=clock)
        self.charged: list[int] = []
        self.given_back: list[int] = []
        self.given_back_charges: list[tuple[int, str]] = []

    def take(self, takes: Sequence[Take]) -> Decisions:
        """One decision for each take."""
        decisions = super().take(takes)
        self.charged += [decision.id for decision in decisions if decision.allowed and not decision.repeated]
        return decisions

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """Settle, once for each id."""
        for each in settlements:
            if not each.actual:
                if each.id not in self.given_back:
                    self.given_back.append(each.id)
                self.given_back_charges.append((each.id, each.charge.bucket))
        return await super().settle(settlements)


@dataclass
class Caller:
    """A caller: how long after the one before it comes, what it does, and when it is cancelled."""

    after: float
    operation: str
    spends: bool
    max_delay: float | None
    cancelled_after: float | None
    stall: float


MOMENTS = st.sampled_from([0.0, 0.0, 0.005, 0.01, 0.015, 0.2, 0.5, 1.0, 1.01])

CALLERS = st.builds(
    Caller,
    after=MOMENTS,
    operation=st.sampled_from(["a", "a", "b"]),
    spends=st.booleans(),
    max_delay=st.sampled_from([None, None, 0.5, 1.5]),
    cancelled_after=st.none() | MOMENTS,
    stall=st.sampled_from([0.0, 0.0, 0.0, 0.15, 1.5]),
)
QUOTAS = st.sampled_from(
    [TokenBucket(1, burst=1), TokenBucket(1, burst=2), FixedWindow(1, 1), RollingWindow(1, 1, buckets=10)]
)
LATENCIES = st.sampled_from([0.0, 0.005, 0.4])
Left: TypeAlias = list[int]


async def call(limiter: Limiter, caller: Caller, left: Left, keys: Any = "key") -> None:
    """Wait as a caller does, and note the id of the decision that it leaves with."""
    if caller.spends:
        async with limiter.spend(keys, 1, operation=caller.operation, max_delay=caller.max_delay) as spent:
            left.append(spent.decision.id)
    else:
        decision = await limiter.acquire(keys, operation=caller.operation, max_delay=caller.max_delay)
        left.append(decision.id)


async def play(clock: SteppedClock, limiters: Sequence[Limiter], callers: Sequence[Caller], keys: Any = "key") -> Left:
    """Let callers come, one after another, to one limiter after another; returns what they left with."""
    left, tasks = Left(), list[asyncio.Task[None]]()
    for number, caller in enumerate(callers):
        await asyncio.sleep(caller.after)
        clock.advance(caller.stall)
        task = asyncio.ensure_future(call(limiters[number % len(limiters)], caller, left, keys))
        if caller.cancelled_after is not None:
            asyncio.get_running_loop().call_later(caller.cancelled_after, task.cancel)
        tasks.append(task)
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        assert outcome is None or isinstance(outcome, (PaceTimeout, asyncio.CancelledError))
    await asyncio.sleep(10)  # what goes back has gone back
    return left


@given(st.lists(CALLERS, max_size=8), QUOTAS, st.none() | LATENCIES)
def test_nobody_leaves_at_a_slot_that_is_given_back(callers: list[Caller], quota: Quota, latency: float | None) -> None:
    """Whatever the callers of one process do."""
    clock = SteppedClock(0)
    shared = NotingStore(clock)
    limiter = Limiter(quota, store=shared if latency is None else StoreElsewhere(shared, 2 * latency))
    left = clock.run(play(clock, [limiter], callers))
    assert not set(left) & set(shared.given_back)
    assert len(shared.given_back_charges) == len(set(shared.given_back_charges))
    if not any(caller.spends for caller in callers):
        assert not shared.given_back
        assert len(shared.charged) <= len({caller.operation for caller in callers})


EVEN = TokenBucket(1, 60, burst=1)
ALL_KINDS = {"even": EVEN, "bucket": TokenBucket(2, 120), "fixed": FixedWindow(1, 60), "rolling": RollingWindow(1, 60)}
KINDS = pytest.mark.parametrize("quota", list(ALL_KINDS.values()), ids=list(ALL_KINDS))


async def booked_ahead(store: Store, quota: Quota) -> tuple[Limiter, Decision]:
    """A limiter whose units are in use, and the decision that has booked the next slot for the operation ``job``."""
    limiter = Limiter(quota, store=store)
    assert await limiter.rate_limit("key", quota.limit)
    booked = await limiter.pace("key", operation="job")
    assert booked.delay
    return limiter, booked


@pytest.fixture(params=["memory", "other process"])
def shared(request: pytest.FixtureRequest) -> tuple[SteppedClock, Store]:
    """A clock at 0, and a store in this process or elsewhere."""
    store = MemoryStore(clock=SteppedClock(0))
    return store.clock, store if request.param == "memory" else StoreElsewhere(store, 0.0)  # type: ignore[return-value]


@KINDS
@pytest.mark.parametrize("of", ["key", "all"])
def test_callers_of_one_operation_leave_together(shared: tuple[SteppedClock, Store], quota: Quota, of: str) -> None:
    """At the slot that was charged once: none counts as a call of its own, and none is late because of the others."""
    clock, store = shared
    limiter, left = Limiter([quota, TokenBucket(50, name="all")], store=store), list[float]()
    key = {quota.name: "key", "all": of}

    async def call() -> None:
        await limiter.acquire(key, operation="job")
        left.append(clock.now)

    async def main() -> None:
        await limiter.rate_limit(key, quota.limit)
        slot = (await limiter.peek(key)).retry_after
        await asyncio.gather(*[call() for _ in range(3)])
        await limiter.acquire(key, operation="job", max_delay=1)
        assert [*left, clock.now] == pytest.approx([slot] * 4, abs=0.05)
        assert await limiter.waiting(key) == 0

    clock.run(main())


@KINDS
def test_a_caller_that_repeats_late(shared: tuple[SteppedClock, Store], quota: Quota) -> None:
    """It waits for what is left of the delay, and not at all if the slot has come."""
    clock, store = shared

    async def main() -> None:
        limiter, booked = await booked_ahead(store, quota)
        clock.advance(30)
        with pytest.raises(PaceTimeout):
            await limiter.acquire("key", operation="job", max_delay=booked.delay - 31)
        await limiter.acquire("key", operation="job", max_delay=booked.delay - 30)
        assert clock.now == booked.ready_at
        clock.advance(200)
        assert (await limiter.acquire("key", operation="job", max_delay=0)).asked_us == clock.now_us()
        assert clock.now == booked.ready_at + 200
        assert await limiter.rate_limit("key")  # nothing was charged since

    clock.run(main())
