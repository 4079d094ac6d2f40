"""The store in this process: how many buckets it keeps, which ones go first, and that threads may share it."""

from __future__ import annotations

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asgi_ratelimit.decision import Charge, Take
from asgi_ratelimit.errors import ConfigurationError
from asgi_ratelimit.limiter import Limiter, SyncLimiter
from asgi_ratelimit.quotas import TokenBucket
from asgi_ratelimit.stores import MemoryStore, memory
from asgi_ratelimit.testing import SteppedClock

QUOTA = TokenBucket(10, 3600)  # a unit comes back in six minutes


class Small:
    """A limiter over a memory store of few buckets, on a clock that is stepped by hand."""

    def __init__(self, max_keys: int = 100) -> None:
        self.clock = SteppedClock()
        self.store = MemoryStore(max_keys=max_keys, clock=self.clock)
        self.limiter = SyncLimiter(QUOTA, store=self.store)

    def spray(self, prefix: str, keys: int) -> None:
        """One request under each of many keys."""
        for number in range(keys):
            self.limiter.rate_limit(f"{prefix} {number}")

    def use_up(self, *keys: str) -> None:
        for key in keys:
            self.limiter.rate_limit(key, QUOTA.burst)

    def left(self, key: str) -> int:
        return self.limiter.peek(key).remaining


@pytest.mark.parametrize("max_keys", [0, -1])
def test_there_is_room_for_one_bucket_at_least(max_keys: int) -> None:
    """The error quotes the number and shows a right one."""
    with pytest.raises(ConfigurationError, match=rf"not {max_keys}: MemoryStore\(max_keys="):
        MemoryStore(max_keys=max_keys)


@pytest.mark.parametrize("max_keys", [1, 2, 100])
def test_no_more_than_max_keys_are_kept(max_keys: int) -> None:
    """However many keys there are, neither the buckets nor what is noted about them grow beyond that."""
    small = Small(max_keys)
    for _ in range(10):
        small.spray("key", 10 * max_keys)
        small.clock.advance(60)
    assert len(small.store._buckets) == max_keys
    assert len(small.store._fullness) == max_keys


def test_a_bucket_that_is_used_again_is_noted_once() -> None:
    """A busy key does not make the notes grow, nor does one that is reset and used again."""
    small = Small()
    for _ in range(1_000):
        small.limiter.rate_limit("busy")
        small.limiter.reset("busy")
    assert len(small.store._fullness) == 1


def test_full_buckets_go_first() -> None:
    """They hold no information: when they make room, nobody notices."""
    small = Small()
    small.spray("one-off", 50)
    small.clock.advance(361)  # these are full again
    small.spray("recent", 50)
    small.spray("newcomer", 50)
    assert {small.left(f"recent {number}") for number in range(50)} == {9}


def test_a_reset_bucket_goes_before_a_used_one() -> None:
    """It is as good as full."""
    small = Small(max_keys=2)
    small.use_up("exhausted")
    small.limiter.rate_limit("other")
    small.limiter.reset("other")
    small.spray("newcomer", 1)
    assert small.left("exhausted") == 0


def test_an_exhausted_bucket_survives_a_spray() -> None:
    """A client cannot get rid of its bucket by asking under many other keys."""
    small = Small()
    small.use_up("exhausted")
    small.spray("one-off", 1_000)
    assert small.left("exhausted") == 0


@pytest.mark.parametrize("exhausted", [1, 8, 9, 50])
def test_buckets_that_filled_up_slowly_survive_a_spray(exhausted: int) -> None:
    """However many there are that were used a little at first and much afterwards, one-off keys go before them."""
    small = Small()
    keys = [f"exhausted {number}" for number in range(exhausted)]
    for key in keys:
        small.limiter.rate_limit(key)
    small.clock.advance(60)
    for key in keys:
        small.limiter.rate_limit(key, 9)
    small.spray("one-off", 1_000)
    assert max(small.left(key) for key in keys) == 0


def test_making_room_is_a_bounded_amount_of_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where every bucket has been used since it was noted, a newcomer still looks at a few only."""
    small = Small(max_keys=1_000)
    small.spray("busy", 1_000)
    small.clock.advance(60)
    small.spray("busy", 1_000)
    looks = count_calls(monkeypatch, "reset_us")
    small.spray("newcomer", 1)
    assert len(looks) <= 20


def test_a_key_that_is_known_makes_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is looked at for a bucket that is there already, nor for a refusal."""
    small = Small(max_keys=1)
    small.limiter.rate_limit("busy")
    looks = count_calls(monkeypatch, "reset_us")
    assert [small.limiter.rate_limit("busy", 9).allowed for _ in range(2)] == [True, False]
    assert not small.limiter.rate_limit("other", 11).allowed
    assert looks == []
    assert small.left("busy") == 0


def count_calls(monkeypatch: pytest.MonkeyPatch, name: str) -> list[Any]:
    calls: list[Any] = []
    original = getattr(memory, name)
    monkeypatch.setattr(memory, name, lambda *args: calls.append(args) or original(*args))
    return calls


def test_refused_and_peeked_keys_are_not_kept() -> None:
    """Only what was taken is worth remembering."""
    small = Small()
    small.limiter.peek("peeked")
    small.limiter.rate_limit("refused", 11)
    small.limiter.reset("reset")
    assert small.store._buckets == {}


def test_a_long_key_is_not_kept() -> None:
    """However much a client sends to be counted under, a few bytes of it stay."""
    small = Small()
    small.limiter.rate_limit("k" * 10_000)
    (_, _, key), *others = small.store._buckets
    assert others == []
    assert sys.getsizeof(key) < 200
    assert small.left("k" * 10_000) == 9


STEPS = st.lists(
    st.tuples(st.sampled_from(["take"] * 6 + ["reset"]), st.integers(0, 5), st.sampled_from([0, 0, 1, 400, 4000])),
    max_size=60,
)


@given(STEPS, st.integers(1, 4))
@settings(max_examples=200)
def test_charges_that_come_again_are_always_decided_like_new_ones(
    steps: list[tuple[str, int, int]], max_keys: int
) -> None:
    """What a charge keeps of its bucket never outlives that: not by a reset, an eviction, or another store."""
    clock = SteppedClock()
    again, new = (MemoryStore(max_keys=max_keys, clock=clock) for _ in range(2))
    elsewhere = MemoryStore(clock=clock)
    takes = [Take((Charge(QUOTA, f"key {number}", 4),)) for number in range(6)]
    for verb, number, seconds in steps:
        clock.advance(seconds)
        fresh = Take((Charge(QUOTA, f"key {number}", 4),))
        if verb == "reset":
            asyncio.run(again.reset(fresh.charges))
            asyncio.run(new.reset(fresh.charges))
        else:
            elsewhere.take_soon([takes[number - 1]])
            assert again.take_soon([takes[number]]) == new.take_soon([fresh])


def test_threads_share_a_quota() -> None:
    """Of 16 threads that ask 50 times each at the same time, exactly as many pass as the quota has."""
    limiter = SyncLimiter(TokenBucket(100, 3600), store=MemoryStore(clock=SteppedClock()))
    start = Barrier(16)

    def ask(_: int) -> int:
        start.wait()
        return sum(limiter.rate_limit("key").allowed for _ in range(50))

    with ThreadPoolExecutor(16) as threads:
        assert sum(threads.map(ask, range(16))) == 100


def test_threads_share_a_store_that_is_full() -> None:
    """Many new keys from many threads at once keep the store whole."""
    small = Small()
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda number: small.spray(f"thread {number}", 500), range(8)))
    assert set(small.store._buckets) == {bucket for _, bucket in small.store._fullness}
    assert len(small.store._fullness) == 100


@pytest.mark.anyio
async def test_it_reads_the_clock_of_this_machine_by_default() -> None:
    """Nothing is needed to start."""
    limiter = Limiter(TokenBucket(2, 3600))
    assert [(await limiter.rate_limit("key")).allowed for _ in range(3)] == [True, True, False]


def test_it_shows_its_size() -> None:
    """For logs."""
    assert repr(MemoryStore(max_keys=5)) == "MemoryStore(max_keys=5)"
