"""What travels between the Redis store and its script."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from asgi_ratelimit.decision import Charge, Take
from asgi_ratelimit.errors import StoreError
from asgi_ratelimit.quotas import FixedWindow, RollingWindow, TokenBucket
from asgi_ratelimit.stores.redis.script import Look, Reset, decode, encode, unpack_state

QUOTA = TokenBucket(10)
TAKE = Take((Charge(QUOTA, "key"),))
NOW = b"1800000000000000"


def test_each_quota_travels_once() -> None:
    """However many takes there are of it."""
    other = TokenBucket(20)
    _, one, _ = encode(b"rl", [TAKE])
    assert encode(b"rl", [TAKE] * 10)[1] == one
    assert len(encode(b"rl", [TAKE, Take((Charge(other, "a"), Charge(QUOTA, "b")))])[1]) == 2 * len(one)


def test_equal_takes_travel_once() -> None:
    """As long as they follow one another, and differ in nothing but their keys."""
    another = Take((Charge(QUOTA, "another"),))
    others = [
        Take((Charge(QUOTA, "key", cost=2),)),
        Take((Charge(QUOTA, "key"),), max_wait=1),
        Take((Charge(QUOTA, "key"),), best_effort=True),
        Take((Charge(TokenBucket(20), "key"),)),
        Look(TAKE),
        Reset(TAKE.charges),
    ]
    _, _, one = encode(b"rl", [TAKE])
    assert len(encode(b"rl", [TAKE, another, TAKE])[2]) == len(one)
    for other in others:
        assert len(encode(b"rl", [TAKE, other, TAKE])[2]) == 3 * len(one)


def test_a_key_does_not_travel_twice() -> None:
    """It is among the script's keys, and nowhere else."""
    assert encode(b"rl", [TAKE])[1:] == encode(b"rl", [Take((Charge(QUOTA, "another key"),))])[1:]


def test_the_keys_of_all_charges_travel_in_their_order() -> None:
    """Under the prefix of the store, even where the same charges go to several."""
    two = Take((Charge(QUOTA, "a"), Charge(TokenBucket(20, name="other"), "b", name="shop")))
    for prefix in (b"rl", b"lr", b"rl"):
        keys = [b"%b:default:per-second:{key}", b"%b:default:per-second:{a}", b"%b:shop:other:{b}"]
        assert encode(prefix, [TAKE, two])[0] == [key % prefix for key in keys]


@pytest.mark.parametrize("verdict", [b"1", b"0"])
def test_a_reply_is_decided_again(verdict: bytes) -> None:
    """The states that the script found give the decision; where the script said otherwise, something is wrong."""
    if verdict == b"1":
        (decision,), _ = decode([TAKE], [NOW, verdict, None])
        assert (decision.allowed, decision.remaining, decision.ready_at) == (True, 9, 1.8e9)
    else:
        with pytest.raises(StoreError, match="the script decided 0"):
            decode([TAKE], [NOW, verdict, None])


@pytest.mark.parametrize("reply", [[NOW, b"1"], [NOW, b"1", None, None], [None, b"1", None], [NOW, None, None]])
def test_a_reply_of_the_wrong_shape(reply: list[Any]) -> None:
    """It is the store's error."""
    with pytest.raises(StoreError, match="wrong shape"):
        decode([TAKE], reply)
    with pytest.raises(StoreError, match="wrong shape"):
        decode([Look(TAKE)], reply)


@pytest.mark.parametrize(
    "quota", [QUOTA, FixedWindow(10, 1), RollingWindow(10, 60)], ids=lambda quota: type(quota).__name__
)
@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"x",
        b"x" * 23,
        struct.pack("<Bfdd", 9, 1e6, 0, 0),
        struct.pack("<BfdHd", 1, 2e6, 1.8e15, 0, 1e7),
        struct.pack("<BfdHd", 2, 1e6, 1.8e15, 0, 1e7),
        b"\0" * 100,
    ],
)
def test_a_foreign_value_is_no_state(quota: Any, value: bytes | None) -> None:
    """It counts as never used: one of another period, for example."""
    assert unpack_state(quota, value) is None
    (decision,), _ = decode([Take((Charge(quota, "key"),))], [NOW, b"1", value])
    assert decision.remaining == 9
