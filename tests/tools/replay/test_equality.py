"""Replays count what takes of a store come to, one by one."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import replace
from typing import Any, TypeAlias

from hypothesis import given
from hypothesis import strategies as st

from asgi_ratelimit import Decision, MemoryStore, Penalty, Rule, TokenBucket
from asgi_ratelimit.inbound.penalties.strikes import apply_penalties
from asgi_ratelimit.inbound.plan import PlannedTakes
from asgi_ratelimit.inbound.rule_table import Defaults, RuleTable
from asgi_ratelimit.keys import path_param
from asgi_ratelimit.testing import SteppedClock
from asgi_ratelimit.tools.logs import LoggedRequest
from asgi_ratelimit.tools.replay import LOGGED_KEY, Limits, Replay, limits_of

START = 1_800_000_000_000_000.0

Counts: TypeAlias = dict[str, dict[str, tuple[int, int]]]
"""By rule and key, how many requests there were, and how many were refused."""

RULES = [
    Rule("/a", "2/s; 9/minute fixed", name="/a"),
    Rule("/a", "7 per 3 s; 5/10s fixed", name="two"),
    Rule("/b/{id}", "3 per 5 s rolling", name="/b", only=True),
    Rule("/b/{id}", "4/s", name="by id", key=path_param("id")),
    Rule("/b/{id}", "4/s; 6/minute rolling", name="by id", key=path_param("id"), methods=["POST"]),
    Rule("/{rest:path}", "1/s; 5/minute", name="shadow", shadow=True),
    Rule("/b/7", None, name="exempt"),
    Rule("/a", "2/s", name="penalty", penalty=Penalty("3 s", after=2)),
    Rule("/{rest:path}", "3/s", name="growing", penalty=Penalty("1 s", growth=2)),
    Rule("/a", "2/s burst 1", name="delay", max_delay=0.7),
    Rule("/b/8", "6/s", name="costly", cost=2.5),
    Rule("/{rest:path}", TokenBucket(2, 1, burst=5, burst_allowance_factor=0.3), name="slow"),
]

TIMES = st.lists(st.sampled_from([0, 0, 1, 40_000, 333_333, 1_000_000, 2_700_001]), min_size=1, max_size=80)

LOGS = st.builds(
    lambda steps, draws: [
        (START + sum(steps[: number + 1]), *draws[number % len(draws)], 1) for number in range(len(steps))
    ],
    TIMES,
    st.lists(
        st.tuples(
            st.sampled_from(["192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8::2", "a {b}", ""]),
            st.sampled_from(["GET", "POST"]),
            st.sampled_from(["/", "/a", "/b/7", "/b/8"]),
        ),
        min_size=1,
        max_size=40,
    ),
)


class Straightforward:
    """Takes of a memory store on a clock that is stepped, as a middleware makes them."""

    def __init__(self) -> None:
        self.clock = SteppedClock()
        self.store = MemoryStore(clock=self.clock)
        self.refused = 0
        self.counts: Counts = defaultdict(dict)

    async def run(self, limits: Limits, log: list[LoggedRequest]) -> None:
        """Decide all requests."""
        for time_us, key, method, path, cost in log:
            self.clock.move_to(time_us / 1e6)
            scope = {"type": "http", "method": method, "path": path, "client": (key, 0), "headers": [], "root_path": ""}
            plan = limits.plan_for(scope)
            planned = None if plan is None else await plan.evaluate(scope)
            if planned is not None and planned.takes:
                await self.decide(planned, cost)

    async def decide(self, planned: PlannedTakes, cost: float) -> None:
        """Decide one request."""
        takes = planned.takes
        if cost != 1:
            takes = tuple(
                [replace(take, charges=tuple([replace(each, cost=cost) for each in take.charges])) for take in takes]
            )
        decisions = [*await self.store.take(takes)]
        if planned.is_enforced and not decisions[0].allowed and planned.max_delays:
            refusing = zip(decisions[0].states, planned.max_delays)
            wait = min([max_delay for state, max_delay in refusing if not state.allowed])
            (decisions[0],) = await self.store.take([replace(takes[0], max_wait=wait)])
        if planned.checks_blocks:
            decisions[0] = await apply_penalties(self.store, decisions[0])
        self.refused += planned.is_enforced and not decisions[0].allowed
        for decision in decisions:
            self.count(decision)

    def count(self, decision: Decision) -> None:
        """Count a decision for each of its rules."""
        assert decision.take is not None
        refused: dict[tuple[str, str], bool] = {}
        for charge, state in zip(decision.take.charges, decision.states):
            rule = charge.name or "default", charge.key
            refused[rule] = refused.get(rule, False) or not state.allowed
        for (name, key), is_refused in refused.items():
            requests, before = self.counts[name].get(key, (0, 0))
            self.counts[name][key] = requests + 1, before + is_refused


def require_equal(limits: Limits, log: list[LoggedRequest]) -> None:
    """Assert that a replay counts what is decided one by one."""
    replay, expected = Replay(limits), Straightforward()
    asyncio.run(replay.run(log))
    asyncio.run(expected.run(limits, log))
    counts: Any = {
        name: {key: (each.requests, each.refused) for key, each in rule.keys.items()}
        for name, rule in replay.rules.items()
        if rule.keys
    }
    assert (replay.requests, replay.refused, counts) == (len(log), expected.refused, dict(expected.counts))
    assert sum(replay.timeline.refused) == replay.refused


@given(
    st.none() | st.sampled_from(["5/s burst 3", "3/s; 20/minute; 4 per 2 s fixed"]),
    st.lists(st.sampled_from(RULES), max_size=4, unique_by=id),
    LOGS,
)
def test_a_replay_is_equal_to_single_takes(quota: str | None, rules: list[Rule], log: list[LoggedRequest]) -> None:
    """To the request, by rule and key, whatever the rules."""
    defaults = Defaults("default", LOGGED_KEY)
    require_equal(Limits(RuleTable(quota, rules, defaults)), log)


@given(
    st.sampled_from(["4/s", "3 per 2 s fixed", "3.5/s rolling; 9/minute", "2/s; 3 per 2 s burst 6; 8/minute fixed"]),
    st.lists(st.tuples(st.integers(0, 9_000_000), st.sampled_from([1, 2, 0.1, 0.7, 30])), max_size=60).map(sorted),
)
def test_recorded_costs_are_equal_to_single_takes(quota: str, costs: list[tuple[int, float]]) -> None:
    """Also those that no quota ever grants, and those that are no whole numbers."""
    require_equal(limits_of(None, [f"calls {quota}"]), [(START + time, "k", "", "calls", cost) for time, cost in costs])
