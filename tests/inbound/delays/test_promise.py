"""Whatever comes and goes: what reaches the app stays within each quota, at the moment at which it does."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import example, given
from hypothesis import strategies as st

from asgi_ratelimit import FixedWindow, Quota, RollingWindow, Rule, TokenBucket
from asgi_ratelimit.keys import header
from tests.support.histories import Ledger
from tests.support.visitors import Site, Visitor

# Microseconds by which timers of an event loop, in floats, may be late.
TIMER_US = 20

DELAYS = st.sampled_from([0.0, 0.3, 1.0, 5.0])


def quotas(name: str) -> st.SearchStrategy[Quota]:
    """Quotas of a few requests, such that many have to wait."""
    limits, periods = st.sampled_from([1, 2, 5]), st.sampled_from([0.5, 1.0, 3.0])
    buckets = st.builds(
        TokenBucket, limits, periods, st.sampled_from([1, 3]), st.sampled_from([1.0, 0.5]), st.just(name)
    )
    windows = st.builds(FixedWindow, limits, periods, st.just(name))
    return buckets | windows | st.builds(RollingWindow, limits, periods, st.just(5), st.just(name))


@dataclass(frozen=True)
class Plan:
    """Two quotas, one for each client and one for all, and who comes and goes when."""

    own: Quota
    shared: Quota
    delays: tuple[float, float]
    comings: list[tuple[float, float | None, str]]

    def run(self) -> list[Visitor]:
        """The visitors, after their visits."""
        rule = Rule("/", self.own, key=header("x-client"), max_delay=self.delays[0])
        site = Site(self.shared, key=lambda _: "all", rules=[rule], max_delay=self.delays[1])
        visitors = [
            Visitor(at=at, leaves=None if stays is None else at + stays, client=client)
            for at, stays, client in self.comings
        ]
        site.run(*visitors)
        return visitors


PLANS = st.builds(
    Plan,
    quotas("own"),
    quotas("shared"),
    st.tuples(DELAYS, DELAYS),
    st.lists(
        st.tuples(
            st.floats(0.0, 6.0).map(lambda at: round(at, 3)),
            st.none() | st.none() | st.floats(0.001, 3.0).map(lambda stays: round(stays, 3)),
            st.sampled_from(["ann", "bob"]),
        ),
        min_size=1,
        max_size=25,
    ),
)


VISITS = [(0.0, None, "ann"), (0.0, None, "ann"), (1.0, None, "ann"), (1.0, None, "bob"), (0.875, None, "ann")]


@example(Plan(RollingWindow(1, 0.5, 5, "own"), FixedWindow(1, 0.5, "shared"), (1.0, 5.0), VISITS))
@given(PLANS)
def test_what_reaches_the_app_never_exceeds_a_quota(plan: Plan) -> None:
    """Neither the quota of a client nor the one for all, in any interval, whoever has waited, gone or been refused.

    Everybody is answered, and a refusal that comes after a wait comes within ``max_delay``, too.
    """
    ledgers = {"ann": Ledger(plan.own), "bob": Ledger(plan.own), "all": Ledger(plan.shared)}
    for visitor in plan.run():
        assert visitor.answered is not None
        assert visitor.answered - visitor.at <= max(plan.delays) + TIMER_US / 1e6
        assert visitor.status == (429 if visitor.entered is None else 200)
        if visitor.entered is not None:
            for key in (visitor.client, "all"):
                ledgers[key].admit(round(visitor.entered * 1e6), 1)
    for ledger in ledgers.values():
        ledger.require_ceiling()
