"""Giving back never makes anyone wait longer, and never lets anyone go too early, wherever slots lie ahead."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence

import pytest
import redis
from hypothesis import example, given, settings

from asgi_ratelimit.algorithms import State, foresee, reset_us
from asgi_ratelimit.decision import Charge, Settlement, Take
from asgi_ratelimit.quotas import Quota, RollingWindow, TokenBucket
from asgi_ratelimit.stores.redis.script_actions import charges_of
from tests.support.bucket_histories import (
    NOW,
    Buckets,
    States,
    Step,
    carry_out,
    directed_history,
    histories,
    random_history,
)
from tests.support.direct_script import DirectScript
from tests.support.examples import up_to
from tests.support.histories import without_generation
from tests.support.redis_server import RedisServer

FIRST_SEED = 830
SOME = up_to(200).max_examples
History = tuple[Sequence[Quota], list[Step]]


def times(quota: Quota, states: list[State], now: float) -> list[float]:
    """Now, some time later, when a window begins, and when each gap opens or is over, for some costs."""
    part_us = quota.part_us if isinstance(quota, RollingWindow) else quota.period_us
    found = {now, now + 1, now + 1_000, now + quota.period_us / 3 // 1, (now // part_us + 1) * part_us // 1}
    for _, last, _, gaps, _, _ in states:
        for start, size in gaps:
            for level in (start, start + size, start + size - quota.period_us, start + size - size / 2):
                found.add(last + level / quota.limit // 1)
                found.add(last + level / quota.limit // 1 + 1)
    return sorted(time for time in found if time >= now)


def costs(quota: Quota, states: list[State]) -> list[float]:
    """Some costs, those that just fit into a gap, and one that waits for an empty bucket."""
    if not isinstance(quota, TokenBucket):
        return sorted({cost for cost in (0.1, 0.5, 1.0, quota.limit) if cost <= quota.limit})
    gaps = {size / quota.period_us for state in states for _, size in state[3]}
    return sorted({0.1, 0.5, 1.0, quota.burst, quota.burst + 1.0, *list(gaps)[:2]})


def delay(quotas: Sequence[Quota], states: list[State], now: float, cost: float) -> float:
    """How long a caller of this cost would wait."""
    take = Take(tuple(Charge(quota, "key", cost) for quota in quotas), math.inf)
    decision = foresee(take, states, now)
    return decision.delay if decision.allowed else math.inf


def require_no_longer_waits(quota: Quota, before: State, after: State, now: float) -> None:
    """At no later time, and for no cost, does a caller wait longer with the state after than with the one before."""
    for at in times(quota, [before, after], now):
        for cost in costs(quota, [before, after]):
            waits = delay([quota], [before], at, cost), delay([quota], [after], at, cost)
            assert waits[1] <= waits[0], (quota, at - now, cost, waits, before, after)


def require_no_longer_waits_of_all(
    quotas: Sequence[Quota], before: list[State], after: list[State], now: float
) -> None:
    """A caller of all quotas at once does not wait longer either, however their gaps disagree."""
    for at in times(quotas[0], [before[0], after[0]], now):
        waits = delay(quotas, before, at, 0.25), delay(quotas, after, at, 0.25)
        assert waits[1] <= waits[0], (quotas, at - now, waits, before, after)


def carry_all_out(history: History) -> Buckets:
    """The buckets after a history, in which nothing that was given back has made anybody wait longer."""
    buckets = Buckets(history[0])
    for step in history[1]:
        before = list(buckets.states)
        carry_out(buckets, step)
        if step.kind == "settle" and step.share <= 1.0:
            for quota, old, new in zip(buckets.quotas, before, buckets.states):
                if old is not None and new is not None and old is not new:
                    require_no_longer_waits(quota, old, new, buckets.now)
            old_states, new_states = [[state for state in states if state] for states in (before, buckets.states)]
            if len(old_states) == len(buckets.quotas) > 1 and step.which % 4 == 0:
                require_no_longer_waits_of_all(buckets.quotas, old_states, new_states, buckets.now)
    return buckets


def require_all(history: History, chance: random.Random) -> None:
    """No longer waits, no interval with too many units, and where all is cancelled, nothing is left."""
    buckets = carry_all_out(history)
    buckets.require_promise()
    if any(step.kind == "take" and not step.may_settle for step in history[1]):
        return
    whole = not any(booked.is_settled and booked.actual for booked in buckets.booked)
    while buckets.open():
        buckets.settle(chance.choice(buckets.open()), 0.0)
        buckets.now += chance.choice([0, 0, 1, 1000])
    for quota, state in zip(buckets.quotas, buckets.states):
        assert not whole or state is None or reset_us(quota, state, buckets.now) == 0.0


@pytest.fixture(scope="module")
def script(redis_server: RedisServer) -> Iterator[DirectScript]:
    """The script on a Redis of its own."""
    with redis.Redis.from_url(redis_server.url) as client:
        yield DirectScript(client)


def with_some_windows(chance: random.Random) -> History:
    """Any history, mostly of token buckets."""
    return random_history(chance, windows=0.1)


@pytest.mark.parametrize(("make", "count"), [(with_some_windows, SOME), (directed_history, SOME // 2)])
def test_redis_is_left_with_the_same_states(
    script: DirectScript, make: Callable[[random.Random], History], count: int
) -> None:
    """To the bit, after every take and every settlement, but for generations that are given out."""

    def require_same_states(action: Take | Settlement, before: States, after: States, now: float) -> None:
        charges = charges_of(action)
        script.client.flushdb()
        for charge, state in zip(charges, before):
            if state is not None:
                script.put(charge, state)
        script.call([action], round(now))
        for charge, state in zip(charges, after):
            assert without_generation(script.state(charge)) == without_generation(state)

    for seed in range(count):
        quotas, steps = make(random.Random(seed))
        buckets = Buckets(quotas, require_same_states)
        for step in steps:
            carry_out(buckets, step)


def take(cost: float, max_wait: float = math.inf, **of: object) -> Step:
    """A take that may wait."""
    return Step("take", cost=cost, max_wait=max_wait, **of)  # type: ignore[arg-type]  # fields of a step


def back(which: int, share: float = 0.0) -> Step:
    """What an open take has not used is given back."""
    return Step("settle", which=which, share=share)


def move(seconds: float) -> Step:
    """Time goes by."""
    return Step("move", us=round(seconds * 1e6))


TAKE, CANCEL, QUEUE = Step("take"), Step("settle"), take(1.0)
HALF_USED = [TAKE, CANCEL, TAKE, back(0, 0.5), take(3.0), QUEUE]

GAP_THAT_SINKS = [take(2), QUEUE, QUEUE, move(0.5), back(1), move(1.0), back(0)]


@given(histories(up=False))
@example(([TokenBucket(1, 1.0, 3, 1.0)], [*HALF_USED, CANCEL, TAKE, CANCEL, back(0, 0.9)]))
@example(([TokenBucket(1, 1.0, 3, 1.0)], [*HALF_USED, QUEUE, CANCEL, CANCEL, CANCEL, QUEUE, back(0, 0.9)]))
@example(([TokenBucket(1, 1.0, 2)], GAP_THAT_SINKS))
@up_to(400)
def test_giving_back_makes_nobody_wait_longer(history: History) -> None:
    """Whatever somebody else would take next, at any cost, now or later."""
    carry_all_out(history)


def test_many_random_histories() -> None:
    """With many slots ahead and gaps among them, over up to three quotas."""
    for seed in range(FIRST_SEED, FIRST_SEED + 30):
        chance = random.Random(seed)
        require_all(random_history(chance), chance)


def test_many_random_histories_with_windows() -> None:
    """Windows beside token buckets, whose slots depend on each other."""
    for seed in range(30):
        chance = random.Random(seed)
        require_all(random_history(chance, windows=0.5), chance)


@pytest.mark.long
@given(histories(up=False))
@settings(max_examples=5_000)
def test_five_thousand_histories(history: History) -> None:
    """Of any kind."""
    carry_all_out(history)


@pytest.mark.long
def test_two_thousand_random_histories() -> None:
    """With many slots ahead and gaps among them, over up to three quotas."""
    for seed in range(1_000_000, 1_002_000):
        chance = random.Random(seed)
        require_all(random_history(chance, windows=seed % 2 * 0.3), chance)


TEN, OTHER = TokenBucket(1, 1.0, 10, name="ten"), TokenBucket(1, 1.0, 1, name="other")


def too_early() -> Iterator[tuple[str, History, float]]:
    """Histories, and the units that somebody would take at their end."""
    yield (
        "a charge in the gap of an earlier slot",
        ([TEN], [take(10), QUEUE, QUEUE, move(0.5), back(1), move(4.5), QUEUE, move(0.5), back(0)]),
        10,
    )
    yield (
        "a charge that waits for another quota",
        (
            [TEN, OTHER],
            [
                take(5, only=0, may_settle=False),
                *[take(1, only=1, may_settle=False)] * 8,
                move(1),
                take(1, may_settle=False),
                move(1),
                back(0),
                move(6),
            ],
        ),
        10,
    )
    yield (
        "slots that were booked ahead before anything was recorded",
        (
            [TokenBucket(1, 1.0, 2)],
            [take(2, may_settle=False), take(1, may_settle=False), move(0.5), QUEUE, move(1), back(0), move(0.5)],
        ),
        1.5,
    )
    yield (
        "a slot that was settled ahead of its time, behind another that was cancelled",
        (
            [TokenBucket(10, 1.0, 1)],
            [
                *[QUEUE] * 2,
                take(0.25),
                back(2, 0.1),
                QUEUE,
                back(2),
                move(0.11),
                take(0.05),
                back(1),
                move(0.015),
            ],
        ),
        1,
    )


CASES = list(too_early())


@pytest.mark.parametrize(("history", "units"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_giving_back_lets_nobody_go_too_early(history: History, units: float) -> None:
    """What was booked is not moved before its slot, so that the units of an interval stay within the promise."""
    buckets = carry_all_out(history)
    buckets.take(units, only=0)
    buckets.require_promise()
    assert buckets.now > NOW
