"""What is given back: the promise holds for actual costs, and what is left is what they would have left."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from asgi_ratelimit.algorithms import MAX_LOWS, current, reset_us
from asgi_ratelimit.algorithms.token_bucket_level import drained
from asgi_ratelimit.quotas import Quota, TokenBucket
from tests.support.bucket_histories import NOW, Buckets, Step, carry_out, directed_history, histories
from tests.support.examples import up_to

SOME = up_to(400).max_examples
FIRST, LATER, LEFT = Step("take", cost=0.1), Step("take", max_wait=math.inf), Step("settle", which=1, share=0.1)
UNRECORDED = Step("take", max_wait=math.inf, may_settle=False)
BACK, PAUSE = Step("settle"), Step("move", us=50_000)


@given(histories())
@example(([TokenBucket(1, 1.0, 1)], [FIRST, UNRECORDED, LEFT, BACK, LATER]))
@example(([TokenBucket(1, 1.0, 1)], [FIRST, LATER, LEFT, PAUSE, FIRST, BACK, BACK, LATER]))
@example(([TokenBucket(1, 1.0, 1)], [FIRST, UNRECORDED, UNRECORDED, LEFT, Step("settle", which=1), BACK, LATER]))
@up_to(800)
def test_the_promise_holds_for_actual_units(history: tuple[list[TokenBucket], list[Step]]) -> None:
    """Under any order of takes, bookings, refunds, settlements up and down, and cancellations."""
    buckets = Buckets(history[0])
    for step in history[1]:
        carry_out(buckets, step)
    buckets.require_promise()


def require_promise(quotas: Sequence[Quota], steps: Sequence[Step]) -> None:
    """In no interval more actual units than promised, after a history and whatever one quota has at its end."""
    buckets = Buckets(quotas)
    for step in steps:
        carry_out(buckets, step)
    buckets.require_promise()


def test_the_promise_holds_where_slots_lie_ahead() -> None:
    """Those that are cancelled leave gaps, and what is booked in these and above them is given back as well."""
    for seed in range(SOME):
        require_promise(*directed_history(random.Random(seed)))


@pytest.mark.long
def test_the_promise_holds_in_twenty_thousand_such_histories() -> None:
    """With up to three quotas, one of which another one keeps waiting."""
    for seed in range(1_000_000, 1_020_000):
        require_promise(*directed_history(random.Random(seed)))


def queue(*costs: float, may_settle: bool = True, only: int | None = None, max_wait: float = math.inf) -> list[Step]:
    """Takes that book ahead."""
    return [Step("take", 0, cost, max_wait, only, may_settle) for cost in costs]


def back(*whiches: int, share: float = 0.0) -> list[Step]:
    """Open takes are settled, each by its number among those that are still open."""
    return [Step("settle", which=which, share=share) for which in whiches]


def move(seconds: float) -> Step:
    """Time goes by."""
    return Step("move", us=round(seconds * 1e6))


TOO_EARLY: dict[str, tuple[list[Quota], list[Step]]] = {
    "a pair of a cancelled slot that lies beyond the queue": (
        [TokenBucket(5, burst=2)],
        [
            *queue(1, 2, 1, 2, 1),
            *back(2, share=0.9),
            *[*back(1, 1, 1), *queue(1), move(0.5), *back(2, 2), *queue(1, 1)],
        ],
    ),
    "a charge of an empty bucket that waits for another quota": (
        [TokenBucket(5, burst=2, name="quota"), TokenBucket(3, burst=5, name="other")],
        [
            *[*queue(0.25, may_settle=False), *queue(0.5, only=0), move(0.1), *queue(2, 2, may_settle=False)],
            *[*back(1, 0), move(0.2), *back(0), move(0.2), *queue(2.5, only=1), *queue(1, only=1, max_wait=0.0)],
        ],
    ),
    "a charge of the same microsecond as others, above later slots": (
        [TokenBucket(1, burst=20, name="quota"), TokenBucket(1, 1.0, 20, 0.5, name="other")],
        [
            *[*queue(0.25, may_settle=False, only=0), *queue(0.5, may_settle=False), *queue(20, only=0)],
            *[*queue(10, may_settle=False, only=0), *queue(1, may_settle=False), *back(2, 2, 2)],
            *[*queue(1, only=1, max_wait=0.0), *queue(1, may_settle=False, only=1), *queue(1, may_settle=False)],
            *[*queue(1, only=1), *queue(1, may_settle=False), *back(0, 4), move(1), *back(0, 0, 1)],
            *[*queue(20, may_settle=False, only=0), *back(0, 0), *queue(1, only=0, max_wait=0.0)],
        ],
    ),
    "a charge before what may still be booked ahead": (
        [TokenBucket(3, burst=2, name="quota"), TokenBucket(1, burst=3, name="other")],
        [
            *[*queue(1, may_settle=False, only=0), *queue(0.1, only=1), *queue(3, may_settle=False, only=1)],
            *[move(0.5), *back(2, share=0.9), *back(1), *queue(1, only=1)],
        ],
    ),
    "a charge in a gap that has come to lie at the end of the queue, before a later slot": (
        [TokenBucket(2, 1.0, 20, 0.5, name="slow"), TokenBucket(2, 10.0, 5.5, name="quota")],
        [
            *[*queue(0.25), *queue(1, only=0), *queue(1), *queue(1, only=0), *queue(5.5, only=1), *queue(1)],
            *[*queue(1, only=1), *queue(1), *back(7, 3), *back(3, share=0.9), *queue(0.1, 1, only=1)],
            *[*back(4, 1, 4, 0, 1, 1, 0), *queue(1)],
        ],
    ),
    "a debit behind a slot that was not recorded": (
        [TokenBucket(0.5, burst=1, name="quota"), TokenBucket(2, burst=2, name="other")],
        [
            *[*queue(0.25, may_settle=False, only=0), *queue(1, may_settle=False, only=1), *queue(1, only=1)],
            *[move(0.5), *queue(1, 1, may_settle=False, only=0), *back(1, 1), move(0.000001), *back(0, share=1.5)],
            *[*back(0), *queue(1, only=0)],
        ],
    ),
    "the newest charge of a bucket that drains at two rates": (
        [TokenBucket(5, 1.0, 2, 0.5)],
        [
            *[*queue(1, 1, 1), *back(2), *queue(2, 2), *back(1, 0), *back(0, share=0.9), *back(0)],
            *[*queue(0.5, 0.25, 0.25), *back(0), *queue(1)],
        ],
    ),
}


@pytest.mark.parametrize(("quotas", "steps"), TOO_EARLY.values(), ids=TOO_EARLY)
def test_nothing_that_is_given_back_lets_anybody_go_too_early(quotas: list[Quota], steps: list[Step]) -> None:
    """Histories in which an interval once had more than its promise."""
    require_promise(quotas, steps)


@given(histories(recorded=True, up=False), st.randoms(use_true_random=False))
@up_to(500)
def test_who_cancels_everything_has_used_nothing(
    history: tuple[list[TokenBucket], list[Step]], chance: random.Random
) -> None:
    """In any order, at any costs, with any time in between, whether the slots have come or not."""
    buckets = Buckets(history[0])
    for step in history[1]:
        if step.kind != "settle" or not step.share:
            carry_out(buckets, step)
    while buckets.open():
        buckets.settle(chance.choice(buckets.open()), 0.0)
        buckets.now += chance.choice([0, 0, 1, 1000])
    for quota, state in zip(buckets.quotas, buckets.states):
        assert state is None or reset_us(quota, state, buckets.now) == 0.0


@given(histories(recorded=True, up=False))
@up_to(500)
def test_what_is_left_is_what_the_actual_costs_would_have_left(history: tuple[list[TokenBucket], list[Step]]) -> None:
    """Exactly with up to eight charges since the bucket was empty, and never less, where nothing is booked ahead."""
    quota = history[0][0]
    buckets = Buckets([quota])
    for step in history[1]:
        carry_out(buckets, Step(**{**vars(step), "max_wait": 0.0}))
        level, last, since_empty = 0.0, NOW, 0
        for booked in buckets.booked:
            level = drained(quota, level, booked.decision.now_us - last)
            since_empty = since_empty + 1 if level > 0 else 1
            level, last = level + booked.actual * quota.period_us, booked.decision.now_us
        state = current(quota, buckets.states[0], buckets.now)
        left, expected = drained(quota, state[0], buckets.now - state[1]), drained(quota, level, buckets.now - last)
        assert left >= expected - 1e-3
        if since_empty <= MAX_LOWS and quota.burst_allowance_factor == 1.0:
            assert left == pytest.approx(expected, abs=1e-3)


def test_a_refund_of_the_older_of_two_charges() -> None:
    """Of two units, one is left again."""
    buckets = Buckets([TokenBucket(2, 3600)])
    for _ in range(2):
        buckets.take(1)
        buckets.now += 7
    buckets.settle(buckets.booked[0], 0.0)
    assert buckets.take(1).allowed
    assert not buckets.take(1).allowed


@pytest.mark.parametrize("most_us", [0, 50, 2000])
def test_two_hundred_settlements_in_any_order(most_us: int) -> None:
    """Takes of ten units that all come to one leave exactly what they came to, at whatever pace."""
    chance = random.Random(most_us)
    quota = TokenBucket(10_000, 86_400 * 300)
    buckets = Buckets([quota])
    for _ in range(200):
        assert buckets.take(10).allowed
        buckets.now += chance.randint(0, most_us)
    for booked in chance.sample(buckets.booked, 200):
        buckets.settle(booked, 1)
        buckets.now += chance.randint(0, most_us)
    passed = (buckets.now - NOW) * quota.limit / quota.period_us
    assert buckets.used() == pytest.approx(200 - passed, abs=1e-9)


def test_logins_that_count_failures_only() -> None:
    """Hundreds of attempts that come in turns and are refunded leave nothing behind."""
    buckets, chance = Buckets([TokenBucket(3, 60)]), random.Random(1)
    for _ in range(400):
        buckets.now += chance.randint(1, 50_000)
        if len(buckets.open()) < 3:
            assert buckets.take(1).allowed
        else:
            buckets.settle(chance.choice(buckets.open()), 0.0)
    for booked in buckets.open():
        buckets.settle(booked, 0.0)
    assert buckets.used() == 0.0


def test_the_record_of_three_charges_and_two_settlements() -> None:
    """Of the first charge, as much comes back as was left of it just before the second. The rest had drained."""
    buckets, history = Buckets([TokenBucket(10, burst=10)]), []
    for at, cost in (0, 4.0), (200, 3.0), (300, 1.0):
        buckets.now = NOW + at * 1000.0
        buckets.take(cost)
        history.append(level_and_record(buckets))
    for number, actual in (1, 1.0), (0, 0.0):
        buckets.settle(buckets.booked[number], actual)
        history.append(level_and_record(buckets))
    assert history == [
        (4.0, ()),
        (5.0, ((0.0, 7.0, 0.0), (0.0, 2.0))),
        (5.0, ((0.0, 8.0, 0.0), (0.0, 2.0), (200.0, 4.0))),
        (3.0, ((0.0, 6.0, 2.0), (0.0, 2.0), (200.0, 2.0))),
        (1.0, ((0.0, 2.0, 4.0), (200.0, 0.0))),
    ]


def level_and_record(buckets: Buckets) -> tuple[float, tuple[tuple[float, ...], ...]]:
    """The level and the record of the first bucket: units, and milliseconds since ``NOW``."""
    state = buckets.states[0]
    assert state is not None
    level, _, _, _, record, _ = state
    return level / 1e6, tuple([((time - NOW) / 1000.0, *[units / 1e6 for units in rest]) for time, *rest in record])
