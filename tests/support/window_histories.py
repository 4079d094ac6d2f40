"""Random histories of windows that are booked ahead, and whose limits change under way; see ``histories``."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import strategies as st

from asgi_ratelimit.limiter import Limiter
from asgi_ratelimit.quotas import FixedWindow, Quota, RollingWindow
from tests.support.histories import Advance, History, Pace, Plan, RateLimit, Settle, Step, TakeAll, evenly


@dataclass(frozen=True)
class ChangeLimits:
    """A new version of the app has other limits, and continues with the same buckets."""

    limit: float

    async def carry_out(self, history: History) -> None:
        history.quotas[:] = [replace(quota, limit=self.limit) for quota in history.quotas]
        stores = [each.store for each in history.limiters]
        history.limiters.clear()  # the old version is gone, and its names are free
        history.limiters += [Limiter(history.quotas, store=store, name=history.name) for store in stores]


LIMITS = st.sampled_from([1, 2, 3, 10, 2.5, 10 / 3, 100, 2.0**31])
COSTS = st.sampled_from([1, 1, 2, 3, 0.1, 0.3, 0.25, 1 / 3, 2.5, 0.000001, 1e-9])
WINDOWS: st.SearchStrategy[Quota] = st.builds(FixedWindow, LIMITS, st.just(10)) | st.builds(
    RollingWindow, LIMITS, st.just(10), st.sampled_from([1, 2, 10])
)
SHARES = st.sampled_from([0.0, 0.0, 0.0, 0.5, 0.1, 1 / 3, 1.5, 4.0, 25.0])
MOVES = st.sampled_from([1, 1_000_000, 3_500_000, 10_000_000, 60_000_000, -1, -2_000_000, -(10**8)])


TEN = RollingWindow(10, 10, 10, name="quota 0")
SIDES: list[Step] = [RateLimit("a", 3), RateLimit("a", 7), Pace("a", 3, None), Settle(1, 0.0)]
APART = Plan(1_800_000_000, [TEN], [*SIDES, Advance(5_000_000), Pace("a", 7, None)])
"""What is used on either side of a part is in no window together."""
DEBIT: list[Step] = [RateLimit("a", 10), Settle(0, 4.0), Pace("a", 1, None)]
SET_BACK = Plan(1_800_000_000, [TEN], [*DEBIT, Advance(-(10**8)), RateLimit("a", 1), Pace("a", 1, None)])
"""A debit that fills windows ahead, and a clock that falls back."""


@st.composite
def window_plans(draw: st.DrawFn) -> Plan:
    """One or two windows, callers who book far ahead, give back in any order, or took too little, and new limits."""
    chosen = draw(st.lists(WINDOWS, min_size=1, max_size=2))
    quotas = [replace(quota, name=f"quota {number}") for number, quota in enumerate(chosen)]
    pacing = st.builds(Pace, st.just("a"), COSTS, st.none() | st.sampled_from([5, 45]))
    taking = st.builds(RateLimit, st.just("a"), COSTS) | st.builds(RateLimit, st.just("a"), st.just(5), st.just(True))
    both = st.builds(TakeAll, st.tuples(COSTS, COSTS), st.sampled_from([0.0, 30.0]))
    settling = st.builds(Settle, st.integers(0, 30), SHARES)
    changing = st.builds(ChangeLimits, LIMITS)
    moving = st.builds(Advance, MOVES)
    steps = evenly(pacing, pacing, pacing, settling, settling, taking, both, moving, changing)
    return Plan(1_800_000_000 + draw(st.integers(0, 9)), quotas, draw(st.lists(steps, max_size=60)))
