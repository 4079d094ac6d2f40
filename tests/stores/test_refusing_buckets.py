"""Buckets that refuse in a full memory store: which of them has room again."""

from __future__ import annotations

import pytest
from asgi_ratelimit.stores.bounded import BoundedValues, value_of
from asgi_ratelimit.stores.bounded.refusing_buckets import RefusingBuckets
from hypothesis import given
from hypothesis import strategies as st

from asgi_ratelimit.quotas import FixedWindow

WAITS = st.integers(1_000, 3_000) | st.integers(1, 10**12)
STEPS = st.just(0) | st.integers(0, 300) | st.integers(0, 10**12)
WHAT = st.sampled_from(["add", "add", "add", "take out", "free", "free"])


@given(st.lists(st.tuples(WHAT, STEPS, WAITS, st.integers(0, 20)), max_size=60))
def test_one_with_room_is_found_in_an_eighth_of_the_time_that_it_had_to_wait(
    history: list[tuple[str, int, int, int]],
) -> None:
    """None is found that has no room, and each is found once, also where some are taken out and come again."""
    refusing, waiting, now = RefusingBuckets(4), dict[str, tuple[float, float]](), 1e15
    for what, step_us, wait_us, number in history:
        now, bucket = now + step_us, str(number)
        if what == "take out":
            assert (refusing.take_out(bucket) is not None) == (waiting.pop(bucket, None) is not None)
        elif what == "add" and bucket not in waiting:
            refusing.add(bucket, value_of(FixedWindow(1, 1), b"", now, (0.0, wait_us, wait_us)), now)
            waiting[bucket] = now, now + wait_us
        elif what == "free":
            free = refusing.pop_free(now)
            if free is None:
                assert all(now <= until + (until - since) / 7 + 1 for since, until in waiting.values())
            else:
                assert waiting.pop(free[0])[1] <= now
        assert refusing.count == len(waiting)


def test_the_oldest_one_goes_first_but_for_those_under_way() -> None:
    """What is under way comes next in turn."""
    refusing = RefusingBuckets(1)
    for number in range(4):
        refusing.add(str(number), value_of(FixedWindow(1, 1), b"", 0.0, (0.0, 1e6, 1e6)), 0.0)
    assert refusing.remove_oldest({"0", "1"})
    assert [refusing.get(str(number)) is None for number in range(4)] == [False, False, True, False]
    assert [refusing.remove_oldest(()) for _ in range(4)] == [True, True, True, False]


def test_one_that_waits_shorter_is_found_behind_those_that_wait_longer() -> None:
    """By half, or by a sixth."""
    refusing = RefusingBuckets(1)
    for wait_us in (2_000_000.0, 1_700_000.0, 1_100_000.0):
        refusing.add(str(wait_us), value_of(FixedWindow(1, 1), b"", 0.0, (0.0, wait_us, wait_us)), 0.0)
    found = [refusing.pop_free(now) for now in (1.0e6, 1.2e6, 1.2e6, 1.9e6, 1.9e6, 2.0e6)]
    assert [each and each[0] for each in found] == [None, "1100000.0", None, "1700000.0", None, "2000000.0"]


USES = st.sampled_from([0.0, 0.01, 0.125, 0.126, 0.9, 1.0])


@given(st.integers(1, 12), st.lists(st.tuples(st.integers(0, 40), USES, st.integers(0, 100)), max_size=80))
def test_the_short_way_to_a_value_that_goes_is_equal(most: int, history: list[tuple[int, float, int]]) -> None:
    """Where the oldest value is hardly used, it goes without a look at others: the same that would go after one."""
    values, at_length, now = BoundedValues(most), BoundedValues(most), 1e15
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(at_length, "_remove_next", lambda now: False)
        for number, use, wait_us in history:
            now += wait_us
            for each in (values, at_length):
                each.put(str(number), value_of(FixedWindow(10, 1), b"", now, ((1.0 - use) * 10, 30.0, 50.0)), now)
            assert list(values.shards[0].items()) == list(at_length.shards[0].items())
            assert values.refusing.count == at_length.refusing.count


def test_the_short_way_is_the_usual_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as nothing is set aside, what is hardly used goes without the long way."""
    values = BoundedValues(1)
    monkeypatch.setattr(values, "_remove_one", None)
    for number in range(3):
        values.put(str(number), value_of(FixedWindow(10, 1), b"", 0.0, (9.0, 1e6, 1e6)), 0.0)
    assert list(values.shards[0]) == ["2"]
