"""Stored values: a state as bytes, and what is read where the bytes are no state."""

from __future__ import annotations

import math
import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asgi_ratelimit import Charge, FixedWindow, Quota, RollingWindow, TokenBucket
from asgi_ratelimit.algorithms.fixed_window import FixedWindowState
from asgi_ratelimit.algorithms.rolling_window import RollingWindowState
from asgi_ratelimit.algorithms.take import State, available, decide, pack, read, reset_us, unused, used_units
from asgi_ratelimit.algorithms.token_bucket import TokenBucketState
from tests.support.strategies import quotas

NOW = 1_800_000_000_000_000.0
BUCKET, FIXED, ROLLING = TokenBucket(10, 60), FixedWindow(10, 60), RollingWindow(10, 60, 6)
PART = NOW // 10e6
STATES: dict[Quota, State] = {
    BUCKET: TokenBucketState(4.5, NOW, NOW - 5e6, 1.5),
    FIXED: FixedWindowState(4.5, NOW),
    ROLLING: RollingWindowState(NOW, ((PART - 2, 3.0), (PART, 1.5))),
}
EACH = pytest.mark.parametrize(("quota", "state"), STATES.items(), ids=lambda each: type(each).__name__)


@given(quotas("quota"), st.integers(0, 2**32))
def test_any_state_is_the_same_once_it_was_stored(quota: Quota, seed: int) -> None:
    """After random takes, at once and booked ahead."""
    r, now = random.Random(seed), NOW + 1.0
    state = unused(quota, now)
    for _ in range(r.randrange(10)):
        now += r.randrange(10_000_000)
        cost = r.uniform(0.001, quota.most)
        after = decide([Charge(quota, "key", cost)], [state], now, r.choice([0.0, math.inf]))[1]
        state = after[0] if after else state
        assert read(quota, pack(quota, state), now) == state


@EACH
def test_a_value_of_another_kind_counts_as_never_used(quota: Quota, state: State) -> None:
    """Each kind reads its own values only."""
    for other in STATES.keys() - {quota}:
        assert read(other, pack(quota, state), NOW) == unused(other, NOW)


@EACH
@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, 1e300], ids=repr)
def test_a_number_that_cannot_be_makes_all_of_it_unused(quota: Quota, state: State, number: float) -> None:
    """In the place of any of the units and times."""
    value = pack(quota, state)
    for place in range(5, len(value), 8):
        damaged = value[:place] + struct.pack("<d", number) + value[place + 8 :]
        assert read(quota, damaged, NOW) == unused(quota, NOW)


@pytest.mark.parametrize(
    "parts",
    [
        ((PART, 1.0), (PART - 1, 1.0)),
        ((PART, 1.0), (PART, 1.0)),
        ((PART + 0.5, 1.0),),
        ((PART, 0.0),),
        tuple([(PART - 5000 + number, 0.001) for number in range(2049)]),
    ],
    ids=["in another order", "twice", "no whole number", "empty", "too many"],
)
def test_parts_that_cannot_be(parts: tuple[tuple[float, float], ...]) -> None:
    """They stand in order, each once, with units; so many that reading them takes long are no state."""
    assert read(ROLLING, pack(ROLLING, RollingWindowState(NOW, parts)), NOW) == unused(ROLLING, NOW)


def test_a_window_that_begins_within_another_cannot_be() -> None:
    """Windows are aligned to the epoch."""
    assert read(FIXED, pack(FIXED, FixedWindowState(3.0, NOW + 1.0)), NOW) == unused(FIXED, NOW)


NUMBERS = st.sampled_from([0.0, 1.0, -1.0, NOW, 2.0**63, 2.0**64, math.nan, math.inf, 5e-324, PART]) | st.floats()
HOSTILE = st.builds(
    lambda kind, stamp, numbers: struct.pack(f"<BI{len(numbers)}d", kind, stamp, *numbers),
    st.sampled_from([20, 20, 21, 22, 22, 8]),
    st.sampled_from([BUCKET.stamp, FIXED.stamp, ROLLING.stamp, 0]),
    st.lists(NUMBERS, max_size=9),
)


@EACH
@given(value=st.binary(max_size=200) | HOSTILE, now=st.sampled_from([NOW, 0.0, 1.0]))
def test_whatever_is_stored_a_take_is_decided(quota: Quota, state: State, value: bytes, now: float) -> None:
    """Somebody else may write to the same server: no value is an error, and none grants more than the limit."""
    found = read(quota, value, now)
    assert 0 <= available(quota, found, now)[0] <= 10
    assert reset_us(quota, found, now) >= 0.0
    units = used_units(value, now, 1e6)
    assert units is None or 0.0 <= units <= 2.0**63
    for max_wait in (0.0, math.inf):
        wait, after = decide([Charge(quota, "key", 1)], [found], now, max_wait)
        assert wait >= 0.0
        assert after is None or len(pack(quota, after[0])) <= 13 + 16 * 2049
    assert decide([Charge(quota, "key", 11)], [found], now, 0.0)[1] is None
