"""Replays: the decisions of limits on the requests of a log, with the package's own rules and arithmetic."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from starlette.types import Scope

from ...buckets import DEFAULT_NAME
from ...decision import Decision, Take
from ...inbound.penalties.block_checks import BlockCheck
from ...inbound.penalties.strikes import apply_penalties
from ...inbound.plan import Plan, PlannedTakes
from ...inbound.responses.refusal_answers import LimitUnavailable
from ...quotas import SECOND_US
from ..logs import LoggedRequest
from .counts import RuleCounts, Timeline
from .plans import ALLOWED, REFUSED, UNDECIDED, UNLIMITED, Decide, decider
from .replayed_buckets import ReplayedBuckets
from .replayed_limits import LOGGED_KEY, Limits, scope_of

MOST_PATHS = 50_000
"""The number of methods and paths whose plans are kept."""


class Replay:
    """Decides the requests of a log under ``limits``, and counts.

    ``requests`` and ``refused`` count all of them. ``unlimited`` counts those that no rule charges, and ``keyless``
    those among them that have no key in the log. ``delayed`` counts those that would have waited for their slots.
    ``clients`` are the counts by the key of the log. ``rules`` are the counts by the names of the rules, and
    ``unknown`` the names of recorded rules without a limit here.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._buckets = ReplayedBuckets()
        self.requests = self.refused = self.unlimited = self.keyless = self.delayed = 0
        self.clients: dict[str, bool] = {}
        self.rules = {rule.name: RuleCounts(rule.name, rule.shadow) for rule in limits.rules}
        self.unknown: set[str] = set()
        self.timeline = Timeline()
        self.first_us = self.last_us = 0.0
        self._keys: dict[str, str | None] = {}
        self._of_path: dict[tuple[str, str], tuple[Plan | None, Decide]] = {}
        self._of_plan: dict[Plan | None, Decide] = {None: self._unplanned}

    async def run(self, requests: Iterable[LoggedRequest]) -> None:
        """Replay the requests, which must come in the order of their times."""
        keys, of_path, clients = self._keys, self._of_path, self.clients
        plan = self._limits.table.constant_plan
        constant = None if plan is None else (plan, decider(plan, self._buckets, self.rules))
        time_us, second_end, count, refused = self.last_us, 0.0, 0, 0
        for request in requests:
            time_us, logged, method, path, cost = request
            if time_us >= second_end:
                self._end_second(second_end - 1.0, count, refused)
                second_end, count, refused = (time_us // SECOND_US + 1.0) * SECOND_US, 0, 0
                self.first_us = self.first_us or time_us
            plan, decide = (method and constant) or of_path.get((method, path)) or self._find(request)
            try:
                key = keys[logged]
            except KeyError:
                key = keys[logged] = LOGGED_KEY.of(scope_of(request))
                clients[logged] = False
            outcome = decide(key, time_us, cost, request)
            if outcome != ALLOWED:
                if outcome == UNDECIDED and plan is not None:
                    outcome = await self._decide(plan, request)
                if outcome == REFUSED:
                    refused += 1
                    clients[logged] = True
                elif outcome == UNLIMITED:
                    self.unlimited += 1
                    self.keyless += key is None
            count += 1
        self._end_second(second_end - 1.0, count, refused)
        self.last_us = time_us

    def _end_second(self, time_us: float, requests: int, refused: int) -> None:
        """Count the requests in the second of ``time_us``."""
        if requests:
            self.timeline.add(time_us, requests, refused)
            self.requests += requests
            self.refused += refused

    def _find(self, request: LoggedRequest) -> tuple[Plan | None, Decide]:
        """The plan of a method and path, and the function that decides requests under it."""
        _, _, method, path, _ = request
        plan = self._limits.plan_for(scope_of(request))
        if plan not in self._of_plan and plan is not None:
            self._of_plan[plan] = decider(plan, self._buckets, self.rules)
        if len(self._of_path) >= MOST_PATHS:
            self._of_path.clear()
        self._of_path[method, path] = plan_and_decide = plan, self._of_plan[plan]
        return plan_and_decide

    def _unplanned(self, _key: str | None, _now: float, _cost: float, request: LoggedRequest) -> int:
        """Count a request that no rule covers."""
        _, _, method, path, _ = request
        if not method:
            self.unknown.add(path)
        return UNLIMITED

    async def _decide(self, plan: Plan, request: LoggedRequest) -> int:
        """The outcome of a request under any plan."""
        self._buckets.now, _, _, _, cost = request
        planned = await _evaluated(plan, scope_of(request))
        if planned is None or not planned.takes:
            return UNLIMITED
        takes = planned.takes if cost == 1 else [_with_cost(take, cost) for take in planned.takes]
        decisions = self._buckets.take(takes)
        if planned.is_enforced:
            decisions[0] = await self._enforced(planned, takes[0], decisions[0])
        for decision in decisions:
            self._count(decision)
        return REFUSED if planned.is_enforced and not decisions[0].allowed else ALLOWED

    async def _enforced(self, planned: PlannedTakes, take: Take, decision: Decision) -> Decision:
        """A decision after the wait that rules allow, and after their penalties."""
        if not decision.allowed and planned.max_delays:
            refusing = zip(decision.states, planned.max_delays)
            max_wait = min([max_delay for state, max_delay in refusing if not state.allowed])
            (decision,) = self._buckets.take((replace(take, max_wait=max_wait),))
            self.delayed += decision.allowed
        return await apply_penalties(self._buckets, decision) if planned.checks_blocks else decision

    def _count(self, decision: Decision) -> None:
        """Count a decision, once for each of its rules."""
        by_name: dict[str, tuple[str, bool]] = {}
        for charge, state in zip(decision.charges, decision.states):
            name = charge.name or DEFAULT_NAME
            by_name[name] = charge.key, not state.allowed or (name in by_name and by_name[name][1])
        for name, (key, is_refused) in by_name.items():
            self.rules[name].add(key, decision.now_us, is_refused)


async def _evaluated(plan: Plan, scope: Scope) -> PlannedTakes | None:
    """What a request takes; ``None`` for nothing, and if a function fails whose rule then lets nobody pass."""
    try:
        return await plan.evaluate(scope)
    except LimitUnavailable:
        return None


def _with_cost(take: Take, cost: float) -> Take:
    charges = [each if isinstance(each, BlockCheck) else replace(each, cost=cost) for each in take.charges]
    return replace(take, charges=tuple(charges))
