"""Stored buckets that are read at an earlier time than they were written, or under a quota with other numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from asgi_ratelimit import FixedWindow, Quota, TokenBucket
from asgi_ratelimit.algorithms import Booked
from asgi_ratelimit.algorithms.take import (
    State,
    available,
    booked_ahead,
    decide,
    pack,
    place_of,
    read,
    settle,
    unused,
    wait,
)
from tests.algorithms.charged import Charged
from tests.support.strategies import quotas

NOW = 1_800_000_000_123_456.0
Q = TypeVar("Q", bound=Quota)


class Used(NamedTuple):
    """What has happened to a bucket: so many microseconds after what came before it, a cost, booked or at once."""

    later_us: int
    share: float
    is_booked: bool


USES = st.lists(st.builds(Used, st.integers(0, 3_000_000), st.sampled_from([1.0, 0.5, 0.1]), st.booleans()), max_size=8)
BACK_US = st.sampled_from([1, 999_999, 3_600_000_000, 10**15]) | st.integers(1, 10**13)


def after(quota: Quota, uses: Sequence[Used]) -> tuple[State, float]:
    """The state of a bucket after all of these, and the time of its last change."""
    state, now, changed = unused(quota, NOW), NOW, NOW
    for used in uses:
        now += used.later_us
        taken = decide([Charged(quota, quota.most * used.share)], [state], now, math.inf if used.is_booked else 0.0)[1]
        if taken:
            state, changed = taken[0], now
    return state, changed


def waits(quota: Quota, state: State, now: float) -> list[float]:
    """How long a unit, half of the most, and the most would have to wait."""
    return [wait(quota, state, now, cost, 0.0) for cost in (1.0, quota.most / 2, quota.most)]


def longer(quota: Quota) -> float:
    """By how much a wait may be longer after the clock went back: the rest of a window or of a part of it."""
    if isinstance(quota, TokenBucket):
        return 0.0
    return quota.period_us if isinstance(quota, FixedWindow) else quota.part_us


# The clock


@given(quotas("quota"), USES, BACK_US)
def test_a_clock_that_goes_back_stands_still(quota: Quota, uses: list[Used], back: int) -> None:
    """However far: nothing is granted, and nobody waits longer than before but for the rest of a window."""
    state, now = after(quota, uses)
    value, earlier = pack(quota, state), max(now - back, 0.0)
    moved = read(quota, value, earlier)
    assert moved.at <= earlier
    assert available(quota, moved, earlier)[0] <= available(quota, state, now)[0]
    limit = longer(quota)
    for later, before in zip(waits(quota, moved, earlier), waits(quota, state, now)):
        assert later <= before + limit
    assert booked_ahead(quota, moved, earlier) == pytest.approx(booked_ahead(quota, state, now), abs=1e-6)


@given(quotas("quota"), USES, BACK_US, st.integers(0, 10**9))
def test_a_charge_of_a_time_to_come_gives_back_no_more_than_it_took(
    quota: Quota, uses: list[Used], back: int, then: int
) -> None:
    """If the clock has gone back since it was booked, at most its units, and never more than there are."""
    state, now = after(quota, uses)
    taken = decide([Charged(quota, 1.0)], [state], now, math.inf)
    assert taken[1] is not None
    booked = Booked(taken[1][0].at, now + taken[0], place_of(quota, taken[1][0]), 1.0)
    at = max(now - back, 0.0)
    moved = read(quota, pack(quota, taken[1][0]), at)
    settled = settle(quota, moved, at, booked, 0.0)
    assert available(quota, settled, at)[0] <= available(quota, moved, at)[0] + 1
    assert available(quota, settled, at + then)[0] <= quota.most + 1e-6


# The limits


def versions(quota: st.SearchStrategy[Q]) -> st.SearchStrategy[tuple[Q, Q]]:
    """Two versions of a quota, whose buckets have the same text."""
    limits = st.sampled_from([1.0, 3.0, 10.0, 2.5]) | st.floats(1.0, 200.0)
    return quota.flatmap(lambda old: st.tuples(st.just(old), limits.map(lambda limit: with_limit(old, limit))))


def with_limit(quota: Q, limit: float) -> Q:
    """The same quota with another limit; the burst of a bucket is its limit."""
    if isinstance(quota, TokenBucket):
        return replace(quota, limit=limit, burst=limit)
    return replace(quota, limit=limit)


@given(versions(quotas("quota")), USES)
def test_nobody_waits_for_slots_of_the_old_limit(both: tuple[Quota, Quota], uses: list[Used]) -> None:
    """Whoever comes after the change waits no longer than for a bucket that is used up under the new limit."""
    old, new = both
    assume(old.stamp != new.stamp)
    state, now = after(old, uses)
    changed = read(new, pack(old, state), now)
    _, full = decide([Charged(new, new.most)], [unused(new, now)], now, 0.0)
    assert full is not None
    assert booked_ahead(new, changed, now) == pytest.approx(0.0, abs=1e-6)
    for cost in (1.0, new.most / 2, new.most):
        assert wait(new, changed, now, cost, 0.0) <= wait(new, full[0], now, cost, 0.0)


@given(versions(quotas("quota")), USES, st.sampled_from([0.0, 0.5, 3.0]), st.integers(0, 10_000_000))
def test_a_charge_of_the_old_limit_grants_nothing_new(
    both: tuple[Quota, Quota], uses: list[Used], share: float, then: int
) -> None:
    """Settled under the new one, it gives back at most its units, and never more than there are."""
    old, new = both
    state, now = after(old, uses)
    wait_us, taken = decide([Charged(old, 1.0)], [state], now, math.inf)
    assert taken is not None
    booked = Booked(taken[0].at, now + wait_us, place_of(old, taken[0]), 1.0)
    now += then
    changed = read(new, pack(old, taken[0]), now)
    settled = settle(new, changed, now, booked, share)
    assert available(new, settled, now)[0] <= available(new, changed, now)[0] + max(math.ceil(1.0 - share), 0)
    assert available(new, settled, now)[0] <= new.most + 1e-6


@given(versions(quotas("quota")), st.lists(st.booleans(), max_size=40))
def test_two_versions_side_by_side_admit_no_more_than_the_larger_one_at_a_time(
    both: tuple[Quota, Quota], turns: list[bool]
) -> None:
    """Whoever of them a request meets, at one moment: what one has used is used for the other."""
    value, admitted = None, 0
    for is_new in turns:
        quota = both[is_new]
        taken = decide([Charged(quota, 1.0)], [read(quota, value, NOW)], NOW, 0.0)[1]
        if taken:
            value, admitted = pack(quota, taken[0]), admitted + 1
    assert admitted <= max(quota.most for quota in both)
