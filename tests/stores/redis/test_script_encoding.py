"""What travels between the Redis store and its script."""

from __future__ import annotations

import logging
import math
import struct
from typing import Any

import pytest
from asgi_ratelimit.stores.redis.packed_quotas import packed_quota, quota_in
from asgi_ratelimit.stores.redis.replies import Disagreements
from asgi_ratelimit.stores.redis.script_encoding import Peek, Reset, decode, encode

from asgi_ratelimit.algorithms import GENERATIONS, decision_of, is_allowed, pack, unpack
from asgi_ratelimit.decision import Charge, Take
from asgi_ratelimit.errors import StoreError
from asgi_ratelimit.quotas import FixedWindow, Quota, RollingWindow, TokenBucket
from tests.support.charges import on_bucket

QUOTA = TokenBucket(10)
CHARGE = Charge(QUOTA, "key")
TAKE = Take((CHARGE,))
ON_BUCKET = on_bucket(CHARGE)
NOW = b"1800000000000000"
NOW_US = 1_800_000_000_000_000.0
BIRTHS = 7 * 2**32 + 99
USED_UP = pack(QUOTA, (10e6, NOW_US, 0, (), (), b""))


def head(verdicts: bytes, now: bytes = NOW) -> bytes:
    """The head of a reply of the script."""
    return b"mark %b 4 %b" % (now, verdicts)


def test_each_quota_travels_once() -> None:
    """However many takes there are of it."""
    other = TokenBucket(20)
    _, one, _ = encode(b"rl", [TAKE])
    assert encode(b"rl", [TAKE] * 10)[1] == encode(b"rl", [ON_BUCKET] * 10)[1] == one
    assert len(encode(b"rl", [TAKE, Take((Charge(other, "a"), Charge(QUOTA, "b")))])[1]) == 2 * len(one)


def test_equal_quotas_travel_once() -> None:
    """Whether they are one object or two."""
    assert encode(b"rl", [ON_BUCKET, on_bucket(Charge(TokenBucket(10), "other"))])[1] == encode(b"rl", [ON_BUCKET])[1]


def test_equal_charges_travel_once() -> None:
    """As long as they follow one another, and differ in nothing but their keys."""
    another = on_bucket(Charge(QUOTA, "another"))
    others = [
        on_bucket(Charge(QUOTA, "key", cost=2)),
        on_bucket(Charge(TokenBucket(20), "key")),
        TAKE,
        Take((CHARGE,), max_wait=1),
        Take((CHARGE,), best_effort=True),
        Peek(TAKE),
        Reset(TAKE.charges),
    ]
    _, _, one = encode(b"rl", [ON_BUCKET])
    assert len(encode(b"rl", [ON_BUCKET, another, ON_BUCKET])[2]) == len(one)
    for other in others:
        assert len(encode(b"rl", [ON_BUCKET, other, ON_BUCKET])[2]) == 3 * len(one)


def test_a_charge_travels_like_a_take_of_it() -> None:
    """Without a wait, the script sees no difference."""
    assert encode(b"rl", [ON_BUCKET]) == encode(b"rl", [TAKE])


def test_a_key_does_not_travel_twice() -> None:
    """It is among the script's keys, and nowhere else."""
    assert encode(b"rl", [TAKE])[1:] == encode(b"rl", [Take((Charge(QUOTA, "another key"),))])[1:]


def test_the_keys_of_all_charges_travel_in_their_order() -> None:
    """Under the prefix of the store, even where the same charges go to several stores."""
    two = Take((Charge(QUOTA, "a"), Charge(TokenBucket(20, name="other"), "b", name="shop")))
    for prefix in (b"rl", b"lr", b"rl"):
        keys = [b"%b:default:per-second:{key}", b"%b:default:per-second:{a}", b"%b:shop:other:{b}"]
        assert encode(prefix, [ON_BUCKET, two])[0] == [key % prefix for key in keys]


def test_a_reply_is_decided_again() -> None:
    """The states that the script met give the decisions."""
    (decision, outcome), values, is_plain = decode([TAKE, ON_BUCKET], [head(b"11"), None, None], BIRTHS)
    assert not is_plain
    assert (decision.allowed, decision.remaining, decision.ready_at) == (True, 9, 1.8e9)
    assert decision_of(CHARGE, outcome) == decision
    assert values == {CHARGE.bucket: pack(QUOTA, (1e6, NOW_US, (BIRTHS + 2) % GENERATIONS, (), (), b""))}
    (refused, outcome), _, _ = decode([TAKE, ON_BUCKET], [head(b"00"), USED_UP, USED_UP], BIRTHS)
    assert (refused.allowed, refused.retry_after) == (False, 0.1)
    assert decision_of(CHARGE, outcome) == refused


@pytest.mark.parametrize(("verdicts", "expected"), [(b"11", True), (b"10", False)])
def test_all_are_plain_where_all_charges_are_granted(verdicts: bytes, expected: bool) -> None:
    """Then a reply says nothing of refusals."""
    second = None if expected else USED_UP
    answers, _, is_plain = decode([ON_BUCKET, ON_BUCKET], [head(verdicts), None, second], BIRTHS)
    assert is_plain == expected == all(is_allowed(answer) for answer in answers if isinstance(answer, tuple))


@pytest.mark.parametrize(
    ("verdict", "value", "answer"),
    [
        (b"0", None, (False, 0, 9, None)),
        (b"1", USED_UP, (True, 1, 0, None)),
    ],
)
@pytest.mark.parametrize("action", [TAKE, ON_BUCKET], ids=["take", "charge"])
def test_the_verdict_of_the_script_stands(
    verdict: bytes, value: bytes | None, answer: Any, action: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Where Python decides otherwise, that is logged and counted, and raises no error: the script has written."""
    before = Disagreements.count
    with caplog.at_level(logging.ERROR, logger="asgi_ratelimit"):
        (decision,), values, _ = decode([action], [head(verdict), value], BIRTHS)
    assert (decision.allowed, decision.granted, decision.remaining, decision.before) == answer
    assert decision.allowed == (decision.retry_after == 0.0)
    assert Disagreements.count == before + 1
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "the script's verdict stands" in caplog.text
    assert values == {}


@pytest.mark.parametrize("verdicts", [b"1", b"11", b"111"])
def test_fewer_verdicts_than_actions_are_fewer_answers(verdicts: bytes) -> None:
    """The script stopped at its bound of work: the rest is to be sent again."""
    for action in (TAKE, ON_BUCKET):
        answers, _, _ = decode([action] * 3, [head(verdicts), *[None] * len(verdicts)], BIRTHS)
        assert len(answers) == len(verdicts)


@pytest.mark.parametrize(
    "reply",
    [
        [head(b"1")],
        [head(b"1"), None, None],
        [head(b"11"), None, None],
        [head(b"")],
        [None, None],
        [head(b"1", now=b"noon"), None],
        [head(b"1", now=b"inf"), None],
        [head(b"1"), 7],
        [NOW, None],
        [head(b"1") + b" 1", None],
        [],
        None,
        b"OK",
        7,
    ],
)
def test_a_reply_of_the_wrong_shape(reply: Any) -> None:
    """It raises ``StoreError``."""
    for action in (TAKE, ON_BUCKET, Peek(TAKE)):
        with pytest.raises(StoreError, match="wrong shape"):
            decode([action], reply, BIRTHS)


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
        TokenBucket(10, 2).stamp + struct.pack("<ddI", 1.8e15, math.nan, 0),
        TokenBucket(10, 1).stamp + struct.pack("<ddI", math.inf, 1e7, 0),
        bytes([7, 0, 0, 0, 0, 0, 0, 0]) + struct.pack("<ddI", 1.8e15, 1e7, 0),
        struct.pack("<Bfdddd", 5, 1e6, math.nan, 0, 1e7, 1),
        struct.pack("<BfHddH", 6, 60e6, 60, math.inf, 0, 0),
        b"\0" * 100,
    ],
)
def test_a_foreign_value_is_no_state(quota: Quota, value: bytes | None) -> None:
    """It counts as never used: one of another period or kind, for example."""
    charge = Charge(quota, "key")
    assert unpack(quota, value) is None
    (decision, outcome), _, _ = decode([Take((charge,)), on_bucket(charge)], [head(b"11"), value, value], BIRTHS)
    assert decision.remaining == 9
    assert decision_of(charge, outcome) == decision


@pytest.mark.parametrize("factor", [1.0, 0.9, 0.3, 1 / 3])
@pytest.mark.parametrize("limit", [1476.5, 0.1, 7])
def test_a_packed_quota_is_the_same_again(limit: float, factor: float) -> None:
    """To the last digit, whatever its burst and its period."""
    quota = TokenBucket(limit, 7.3, burst=3.3, burst_allowance_factor=factor, name="per-second")
    assert quota_in(packed_quota(quota), QUOTA) == quota
