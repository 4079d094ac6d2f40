"""What travels between the Redis store and its script."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from asgi_ratelimit.decision import Charge, Take
from asgi_ratelimit.errors import StoreError
from asgi_ratelimit.quotas import FixedWindow, RollingWindow, TokenBucket
from asgi_ratelimit.stores._wire import Look, decode, encode, unpack_state

QUOTA = TokenBucket(10)
TAKE = Take((Charge(QUOTA, "key"),))
NOW = b"1800000000000000"


def test_each_quota_travels_once() -> None:
    """However many takes there are of it."""
    other = TokenBucket(20)
    one, _ = encode([TAKE])
    assert encode([TAKE] * 10)[0] == one
    assert len(encode([TAKE, Take((Charge(other, "a"), Charge(QUOTA, "b")))])[0]) == 2 * len(one)


def test_a_key_does_not_travel_twice() -> None:
    """It is among the script's keys, and nowhere else."""
    assert encode([TAKE]) == encode([Take((Charge(QUOTA, "another key"),))])


@pytest.mark.parametrize("verdict", [b"1", b"0"])
def test_a_reply_is_decided_again(verdict: bytes) -> None:
    """The states that the script found give the decision; where the script said otherwise, something is wrong."""
    if verdict == b"1":
        ((decision, _),) = decode([TAKE], [NOW, verdict, None])
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
    ((decision, _),) = decode([Take((Charge(quota, "key"),))], [NOW, b"1", value])
    assert decision.remaining == 9
