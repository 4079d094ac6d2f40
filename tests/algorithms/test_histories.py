"""What must hold whatever happens: random histories over all kinds of quotas, on both stores at once."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import example, given, settings

from asgi_ratelimit.algorithms import unpack
from asgi_ratelimit.decision import Decision, Take
from asgi_ratelimit.quotas import TokenBucket
from tests.support.examples import up_to
from tests.support.histories import (
    Advance,
    Answer,
    Bucket,
    History,
    Pace,
    Plan,
    Promise,
    RateLimit,
    Settle,
    Settled,
    Step,
    Stores,
    Writes,
    bills,
    plans,
    without_generation,
)
from tests.support.redis_server import RedisServer
from tests.support.window_histories import APART, SET_BACK, window_plans

SOME = up_to(200)


@pytest.fixture(scope="module")
def stores(redis_server: RedisServer) -> Iterator[Stores]:
    """The memory store and the Redis store of all histories."""
    made = Stores(redis_server.url)
    yield made
    made.close()


class Equality(Promise):
    """Both stores say the same, and keep the same states, to the bit, but for the generations that they give out."""

    async def asked(self, answer: Answer) -> None:
        assert answer.decisions[0] == answer.decisions[1]

    async def looked(self, answer: Answer) -> None:
        assert answer.decisions[0] == answer.decisions[1]

    async def ended(self, history: History) -> None:
        get = history.stores.client.get
        for bucket, (quota, state) in history.states.items():
            assert without_generation(unpack(quota, get(f"rl:{bucket}"))) == without_generation(state)


@given(plan=plans(back=True))
@up_to(200)
def test_both_stores_decide_alike(stores: Stores, plan: Plan) -> None:
    """The memory store is the reference: Redis says the same of every take, and is left with the same states."""
    stores.run(plan, Equality())


@given(plan=bills())
@SOME
def test_both_stores_decide_alike_on_token_buckets(stores: Stores, plan: Plan) -> None:
    """Rate limiting by one or several of them, which most takes are: the script has ways of its own for that."""
    stores.run(plan, Equality())


@given(plan=window_plans())
@example(plan=APART)
@example(plan=SET_BACK)
@up_to(500)
def test_both_stores_decide_alike_on_windows(stores: Stores, plan: Plan) -> None:
    """Bookings far ahead, cancelled in any order, settled to less or more, and limits that change under way."""
    stores.run(plan, Equality())


class Ceiling(Promise):
    """No bucket admits more than its quota promises, whatever was given back."""

    async def ended(self, history: History) -> None:
        for ledger in history.ledgers.values():
            if ledger.bound:
                ledger.require_ceiling()


@given(plan=plans())
@SOME
def test_no_interval_holds_more_than_its_quota_promises(stores: Stores, plan: Plan) -> None:
    """Net of what was given back, counted at the slots: in any interval, any one window, or any one period.

    Debt does not count, but what is admitted beside it does. A clock that was set back is out of it, and so is a cost
    above the burst, which pacing admits to an empty bucket.
    """
    stores.run(plan, Ceiling())


class Exactness(Promise):
    """What was refused passes at its retry time if nothing else comes, and not before; for never, it never does."""

    async def asked(self, answer: Answer) -> None:
        decision, history = answer.decisions[0], answer.history
        now = history.clock.now
        if decision.allowed:
            return
        assert decision.take
        if decision.retry_after == math.inf:
            assert await self.passes(history, decision.take, 1_000 * decision.quota.period) == [False, False]
        else:
            assert await self.passes(history, decision.take, decision.retry_after - 1e-6) == [False, False]
            history.clock.move_to(now)
            assert await self.passes(history, decision.take, decision.retry_after) == [True, True]
        history.clock.move_to(now)

    async def passes(self, history: History, take: Take, later: float) -> list[bool]:
        history.clock.advance(later)
        return [(await limiter.store.peek(take)).allowed for limiter in history.limiters]


THIRD = TokenBucket(1 / 3, burst=1, name="quota 0")
IN_A_HOLE: list[Step] = [Pace("a", 1, None)] * 2 + [Advance(2)] + [Pace("a", 1, None)] * 2 + [Settle(1, 0.0)]


@given(plan=plans())
@example(plan=Plan(1_800_000_000, [THIRD], [*IN_A_HOLE, RateLimit("a", 1)]))  # a free slot whose ends a division rounds
@SOME
def test_what_is_refused_passes_at_its_retry_time_and_not_before(stores: Stores, plan: Plan) -> None:
    """One microsecond before ``retry_after`` the same take is refused, on either store, wherever the clock went."""
    stores.run(plan, Exactness())


@given(plan=window_plans())
@SOME
def test_windows_that_are_booked_ahead_keep_their_retry_times(stores: Stores, plan: Plan) -> None:
    """What is free before a later booking is found at the very microsecond when it comes."""
    stores.run(plan, Exactness())


class Thrift(Promise):
    """What takes nothing writes nothing, but to bring back a state that a clock has left in the future."""

    watches_writes = True

    async def asked(self, answer: Answer) -> None:
        if not answer.decisions[0].allowed:
            ahead = left_in_the_future(answer.decisions[0], answer.writes)
            assert answer.writes.seen() == (ahead, len(ahead))

    async def looked(self, answer: Answer) -> None:
        assert answer.writes.seen() == (set(), 0)


def left_in_the_future(decision: Decision, writes: Writes) -> set[Bucket]:
    """The buckets of a take whose states were last changed more than a period from now."""
    assert decision.take
    charged = {charge.bucket for charge in decision.take.charges}
    states = [(bucket, *writes.states[bucket]) for bucket in charged]
    return {bucket for bucket, quota, state in states if state and state[1] > decision.now_us + quota.period_us}


@given(plan=plans())
@SOME
def test_a_refusal_and_a_look_write_nothing(stores: Stores, plan: Plan) -> None:
    """Neither in memory nor in Redis, but for states that are more than a period ahead of the clock, once."""
    stores.run(plan, Thrift())


class Once(Promise):
    """A decision that is settled again, because the first answer got lost on its way, is settled once."""

    watches_writes = True

    async def settled(self, settled: Settled) -> None:
        writes = Writes(settled.history)
        again = [replace(decision, settled=False) for decision in settled.decisions]
        await settled.history.carry_back(again, settled.actual)
        assert writes.seen() == (set(), 0)


@given(plan=plans())
@SOME
def test_settling_twice_is_settling_once(stores: Stores, plan: Plan) -> None:
    """The second time writes nothing, in memory or in Redis, be it a refund, a cancellation or a debt."""
    stores.run(plan, Once())


class Expiry(Promise):
    """No key stays for ever."""

    async def ended(self, history: History) -> None:
        client = history.stores.client
        assert all(client.pttl(key) != -1 for key in client.scan_iter())  # one may go meanwhile


@given(plan=plans())
@SOME
def test_every_key_goes_by_itself(stores: Stores, plan: Plan) -> None:
    """Whatever wrote it, a take or a settlement, it has a time to live."""
    stores.run(plan, Expiry())


@pytest.mark.long
@given(plan=plans())
@settings(max_examples=10_000)
def test_ten_thousand_histories(stores: Stores, plan: Plan) -> None:
    """All of that at once, for longer."""
    stores.run(plan, Equality(), Ceiling(), Exactness(), Thrift(), Once(), Expiry())
