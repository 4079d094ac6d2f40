"""Both kinds of windows against a list of all that is booked, with exact sums: every slot, and what is left."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import count

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from asgi_ratelimit.algorithms import ALGORITHMS, State, booked_ahead, reset_us, used
from asgi_ratelimit.decision import Charge, SettledCharge
from asgi_ratelimit.quotas import FixedWindow, RollingWindow
from tests.support.examples import up_to

START = 1_800_000_000e6
LIMITS = st.sampled_from([1, 2, 3, 5, 10, 2.5, 1.1])
COSTS = st.sampled_from([1, 1, 1, 2, 3, 0.1, 0.3, 0.25, 2.5, 0.000001])
QUOTAS = st.builds(FixedWindow, LIMITS, st.just(10)) | st.builds(
    RollingWindow, LIMITS, st.just(10), st.sampled_from([1, 2, 5, 10])
)


def exact(units: float) -> Fraction:
    """Units as they are meant, not as a double holds them."""
    return Fraction(repr(float(units)))


@dataclass
class Booking:
    """Units in a window or part, and the state's time and generation before them."""

    place: int
    cost: float
    units: Fraction
    since: float


@dataclass
class Model:
    """A quota, its state by the algorithm, and all that was booked."""

    quota: FixedWindow | RollingWindow
    now: float = START
    bookings: list[Booking] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.algorithm = ALGORITHMS[type(self.quota)]
        self.state: State = self.algorithm.fresh(self.now)

    @property
    def parts(self) -> int:
        """How many parts count beside one."""
        return self.quota.buckets if isinstance(self.quota, RollingWindow) else 0

    @property
    def part_us(self) -> float:
        return self.quota.part_us if isinstance(self.quota, RollingWindow) else self.quota.period_us

    def fullest(self, at: int) -> Fraction:
        """The units of the fullest window that has a part."""
        ends = range(at, at + self.parts + 1)
        return max(sum(b.units for b in self.bookings if end - self.parts <= b.place <= end) for end in ends)

    def earliest(self, cost: float, first: int) -> int:
        """The first part with room."""
        return next(at for at in count(first) if self.fullest(at) + exact(cost) <= exact(self.quota.limit))

    def take(self, cost: float, min_wait_us: float, max_wait_us: float) -> None:
        """A take, checked: its wait, and what is left."""
        first = int((self.now + min_wait_us) // self.part_us)
        after, wait_us, (units, _, _) = self.algorithm.take(
            self.quota, self.state, self.now, cost, max_wait_us, min_wait_us
        )
        if cost > self.quota.limit:
            assert (after, wait_us) == (None, math.inf)
            return
        place = self.earliest(cost, first)
        assert wait_us == max(min_wait_us, place * self.part_us - self.now)
        assert (after is not None) == (wait_us <= max_wait_us)
        if after is not None:
            assert self.algorithm.place(self.quota, self.state, self.now, cost, wait_us)[0] == place
            self.bookings.append(Booking(place, cost, exact(cost), max(self.now, self.state[1])))
            self.state = after
        assert units == math.floor(exact(self.quota.limit) - self.fullest(int(self.now // self.part_us)))

    def settle(self, number: int, share: float) -> None:
        """Give back a part of a booking, or all of it; it must not make anyone wait longer."""
        if not self.bookings:
            return
        booking = self.bookings[number % len(self.bookings)]
        left = round(booking.cost * share, 6)
        waits = self.waits()
        charge = Charge(self.quota, "key", booking.cost)
        settled = SettledCharge(charge, booking.since, 0, booking.place, 0.0, left)
        self.state = self.algorithm.give_back(self.quota, self.state, self.now, settled)
        booking.units = exact(left)
        self.bookings.remove(booking)
        if left:
            self.bookings.append(Booking(booking.place, left, exact(left), booking.since))
        assert all(after <= before for after, before in zip(self.waits(), waits))

    def waits(self) -> list[float]:
        """How long some costs would wait."""
        costs = (0.1, 1.0, self.quota.limit)
        return [self.algorithm.take(self.quota, self.state, self.now, cost, 0.0)[1] for cost in costs]

    def require_exact(self) -> None:
        """No window is above the limit, and what is counted is what was booked."""
        assert all(self.fullest(b.place) <= exact(self.quota.limit) for b in self.bookings)
        current = int(self.now // self.part_us)
        ahead = sum(b.units for b in self.bookings if b.place > current)
        assert booked_ahead(self.quota, self.state, self.now) == pytest.approx(float(ahead))
        counting = sum(b.units for b in self.bookings if b.place >= current - self.parts)
        assert used(self.quota, self.state, self.now) == pytest.approx(float(counting))


Step = tuple[str, float, float]
STEPS: st.SearchStrategy[Step] = (
    st.tuples(st.just("pace"), COSTS, st.sampled_from([0.0, 0.0, 0.0, 1e6, 5e6, 12e6, 35e6]))
    | st.tuples(st.just("limit"), COSTS, st.just(0.0))
    | st.tuples(st.just("advance"), st.sampled_from([1.0, 1e6, 3.5e6, 5e6, 10e6, 60e6]), st.just(0.0))
    | st.tuples(st.just("settle"), st.integers(0, 50).map(float), st.sampled_from([0.0, 0.0, 0.5, 0.1]))
)


def carry_out(model: Model, steps: list[Step]) -> None:
    for verb, number, other in steps:
        if verb == "pace":
            model.take(number, other, math.inf)
        elif verb == "limit":
            model.take(number, 0.0, 0.0)
        elif verb == "settle":
            model.settle(int(number), other)
        else:
            model.now += number
        model.require_exact()


APART: list[Step] = [("limit", 3, 0.0), ("advance", 5e6, 0.0), ("pace", 3, 12e6), ("pace", 5, 5e6)]


@given(QUOTAS, st.lists(STEPS, max_size=40))
@example(RollingWindow(10, 10, 10), APART)  # what is used on either side is in no window together
@up_to(300)
def test_every_take_goes_into_the_earliest_window_with_room(
    quota: FixedWindow | RollingWindow, steps: list[Step]
) -> None:
    """Under any order of takes, bookings, refunds and cancellations; and no window ever has more than its limit."""
    carry_out(Model(quota), steps)


@given(QUOTAS, st.lists(STEPS, max_size=40), st.randoms())
@up_to(300)
def test_all_that_is_cancelled_is_as_if_never_used(
    quota: FixedWindow | RollingWindow, steps: list[Step], random: object
) -> None:
    """In any order, at any costs: the bucket is full, and means nothing any more."""
    model = Model(quota)
    carry_out(model, [step for step in steps if step[0] != "advance"])
    while model.bookings:
        model.settle(random.randrange(1000), 0.0)  # type: ignore[attr-defined]
    assert reset_us(quota, model.state, model.now) == 0.0
    assert model.state[0] == model.algorithm.fresh(model.now)[0]
    assert model.algorithm.most_at_once(quota, model.state, model.now) == math.floor(quota.limit)
