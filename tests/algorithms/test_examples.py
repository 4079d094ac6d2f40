"""Each kind of quota, by a few numbers that can be worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from asgi_ratelimit import FixedWindow, Quota, RollingWindow, TokenBucket
from asgi_ratelimit.algorithms import Booked
from asgi_ratelimit.algorithms.take import State, available, decide, place_of, settle, unused
from tests.algorithms.charged import Charged

# The start of a minute, in microseconds.
START = 1_800_000_000_000_000.0
S = 1_000_000.0
MAX = math.inf


class Bucket:
    """The bucket of one quota, and a clock in seconds."""

    def __init__(self, quota: Quota) -> None:
        self.quota = quota
        self.now = START
        self.state: State = unused(quota, START)

    def at(self, seconds: float) -> None:
        """Move the clock to so many seconds after the start."""
        self.now = START + seconds * S

    def take(self, cost: float, max_wait: float = 0.0) -> tuple[float, Booked | None]:
        """The seconds until the slot, or until the same cost fits, and the record of what was booked."""
        wait, after = decide([Charged(self.quota, cost)], [self.state], self.now, max_wait * S)
        if after is None:
            return wait / S, None
        self.state = after[0]
        booked = Booked(self.state.at, self.now + wait, place_of(self.quota, self.state), cost)
        return wait / S, booked

    def book(self, cost: float) -> Booked:
        """The record of a charge that may wait for as long as it takes."""
        booked = self.take(cost, MAX)[1]
        assert booked is not None
        return booked

    def settle(self, booked: Booked, actual: float) -> None:
        """Correct a charge to what it came to."""
        self.state = settle(self.quota, self.state, self.now, booked, actual)

    @property
    def units(self) -> int:
        """The whole units that can be taken now."""
        return available(self.quota, self.state, self.now)[0]


BUCKET = TokenBucket(10, 1, burst=5)
SLOW = TokenBucket(10, 1, burst=5, burst_allowance_factor=0.5)
FIXED = FixedWindow(10, 60)
ROLLING = RollingWindow(10, 60, 6)

TABLE: list[tuple[Quota, Sequence[tuple[float, float, float, float]]]] = [
    (
        BUCKET,  # a unit drains in 0.1 s; (second, cost, longest wait, the wait)
        [
            (0.0, 5, 0, 0.0),  # a whole burst at once
            (0.0, 1, 0, 0.1),  # is refused, and told when it fits
            (0.1, 1, 0, 0.0),
            (0.1, 2, MAX, 0.2),  # is booked: 5 + 2 are 2 above the burst
            (0.1, 1, MAX, 0.3),  # behind it
            (0.1, 1, 0, 0.4),
            (0.9, 5, 0, 0.0),  # 8 have drained since, and the bucket is empty
        ],
    ),
    (
        SLOW,  # below 4, the last units drain in 0.2 s each
        [(0.0, 5, 0, 0.0), (0.0, 1, 0, 0.1), (0.0, 2, 0, 0.3), (0.0, 5, 0, 0.9), (0.3, 3, 0, 0.2), (0.5, 3, 0, 0.0)],
    ),
    (
        TokenBucket(10, 1, burst=2),  # a cost above the burst, of callers that may wait only
        [(0.0, 3, 0, math.inf), (0.0, 3, MAX, 0.0), (0.0, 1, 0, 0.2), (0.1, 3, MAX, 0.2), (0.3, 1, 0, 0.2)],
    ),
    (
        FIXED,
        [
            (50.0, 8, 0, 0.0),
            (50.0, 3, 0, 10.0),  # the next window begins then
            (50.0, 2, 0, 0.0),
            (60.0, 10, 0, 0.0),  # and all of the limit is there
            (60.0, 11, MAX, math.inf),
            (61.0, 6, MAX, 59.0),  # of the window that begins at 120
            (61.0, 6, MAX, 119.0),  # does not fit beside it
            (61.0, 4, MAX, 119.0),  # slots are booked in order
        ],
    ),
    (
        ROLLING,  # parts of 10 s: a unit counts until 60 s after the end of its part
        [
            (5.0, 4, 0, 0.0),
            (12.0, 6, 0, 0.0),
            (12.0, 4, 0, 58.0),
            (12.0, 5, 0, 68.0),
            (69.999999, 1, 0, 0.000001),
            (70.0, 4, 0, 0.0),
            (70.0, 7, MAX, 70.0),
            (70.0, 11, MAX, math.inf),
            (80.0, 3, 0, 60.0),  # nothing is taken in front of a slot
            (80.0, 3, MAX, 60.0),
        ],
    ),
]


@pytest.mark.parametrize(("quota", "steps"), TABLE, ids=lambda each: repr(each) if isinstance(each, Quota) else "")
def test_takes_one_after_the_other(quota: Quota, steps: Sequence[tuple[float, float, float, float]]) -> None:
    """How long each has to wait; it is booked if that is within its longest wait."""
    bucket = Bucket(quota)
    for number, (second, cost, max_wait, wait) in enumerate(steps):
        bucket.at(second)
        assert bucket.take(cost, max_wait)[0] == wait, number


def test_a_take_that_waits_for_another_bucket_leaves_room_in_front_of_it() -> None:
    """2 units in 0.1 s count as 3 until then, so 5 of 8 fit now; all together never exceed the burst."""
    quota, even = TokenBucket(10, 1, burst=8), TokenBucket(10, 1, burst=1)
    _, used = decide([Charged(even, 1)], [unused(even, START)], START, 0.0)
    assert used is not None
    wait, after = decide([Charged(quota, 2), Charged(even, 1)], [unused(quota, START), *used], START, MAX)
    assert wait == 0.1 * S
    assert after is not None
    assert available(quota, after[0], START)[0] == 5
    assert available(quota, after[0], START + wait)[0] == 6


# Giving back


def test_what_has_not_drained_of_an_older_charge_comes_back() -> None:
    """A charge of 6 and one of 4, and 3 s later 7 are left: of the first, 3 have drained, and 3 can come back."""
    bucket = Bucket(TokenBucket(1, 1, burst=10))
    older = bucket.book(6)
    bucket.book(4)
    bucket.at(3.0)
    bucket.settle(older, 0)
    assert bucket.units == 6
