"""Replays: what limits would have decided on the requests of a log, by the package's own rules and store."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from starlette.types import Scope

from ...algorithms import PLAIN_PARTS, is_allowed
from ...buckets import DEFAULT_NAME
from ...decision import Decision, Take
from ...inbound.answers.responses import LimitUnavailable
from ...inbound.penalties.blocks import apply_penalties
from ...inbound.plan import Plan, PlannedTakes
from ...stores import MemoryStore
from ..logs import LoggedRequest
from .counts import RuleCounts, Timeline
from .limits import Limits

MANY_KEYS = 2_000_000
"""Buckets of a replay: so many that hardly any of them is forgotten before it is full again."""


class ReplayClock:
    """The time of the request that is replayed."""

    def __init__(self) -> None:
        self.time_us = 0.0

    def now_us(self) -> int:
        """The time in microseconds since the epoch."""
        return int(self.time_us)


class Replay:
    """Decides the requests of a log under ``limits``, and counts.

    ``requests`` and ``refused`` are all of them, ``unlimited`` those that no rule charges, ``delayed`` those that
    would have waited for their slots. ``clients`` tells by the key of the log who was refused. ``rules`` are the counts
    by the names of the rules, and ``unknown`` the names of recorded rules that no limit was given for.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._clock = ReplayClock()
        self._store = MemoryStore(max_keys=MANY_KEYS, clock=self._clock)
        self.requests = self.refused = self.unlimited = self.delayed = 0
        self.clients: dict[str, bool] = {}
        self.rules = {rule.name: RuleCounts(rule.name, rule.shadow) for rule in limits.rules}
        self.unknown: set[str] = set()
        self.timeline = Timeline()
        self.first_us = self.last_us = 0.0

    async def run(self, requests: Iterable[LoggedRequest]) -> None:
        """Replay the requests, which come in the order of their times."""
        plan_for, submit_charge, clients = self._limits.plan_for, self._store.submit_charge, self.clients
        clock, count_time, rules = self._clock, self.timeline.add, self.rules
        scope: Scope = {"type": "http", "headers": [], "root_path": "", "query_string": b""}
        for time_us, key, method, path, cost in requests:
            clock.time_us = time_us
            scope["client"], scope["method"], scope["path"] = (key, 0), method, path
            plan = plan_for(scope)
            bucket = None if plan is None or cost != 1 else plan.bucket(scope)
            if plan is None:
                is_refused = self._skip(method, path)
            elif bucket is not None and plan.template is not None:
                outcome = submit_charge(plan.template, bucket)
                is_refused = len(outcome) != PLAIN_PARTS and not is_allowed(outcome)
                rules[plan.template.name].add(bucket[len(plan.template.prefix) : -1], time_us, is_refused)
            elif plan.is_single:
                is_refused = self._decide_single(plan.take(scope), cost)
            else:
                is_refused = await self._decide(plan, scope, cost)
            clients[key] = is_refused or clients.get(key, False)
            count_time(time_us, is_refused)
            self.refused += is_refused
            self.requests += 1
            self.first_us = self.first_us or time_us
            self.last_us = time_us

    def _skip(self, method: str, path: str) -> bool:
        """Count a request that no rule is for."""
        self.unlimited += 1
        if not method:
            self.unknown.add(path)
        return False

    def _decide_single(self, take: Take | None, cost: float) -> bool:
        """Whether a request is refused that takes once, at a recorded ``cost`` unless that is 1."""
        if take is None:
            self.unlimited += 1
            return False
        decision = self._store.submit(take if cost == 1 else _with_cost(take, cost))
        self._count(decision)
        return not decision.allowed

    async def _decide(self, plan: Plan, scope: Scope, cost: float) -> bool:
        """Whether a request is refused under any plan."""
        planned = await _evaluated(plan, scope)
        if planned is None or not planned.takes:
            self.unlimited += 1
            return False
        takes = planned.takes if cost == 1 else [_with_cost(take, cost) for take in planned.takes]
        decisions = await self._store.take(takes)
        if planned.is_enforced:
            decisions[0] = await self._enforced(planned, decisions[0])
        for decision in decisions:
            self._count(decision)
        return planned.is_enforced and not decisions[0].allowed

    async def _enforced(self, planned: PlannedTakes, decision: Decision) -> Decision:
        """A decision after the wait that rules allow, and after their penalties."""
        if not decision.allowed and planned.max_delays:
            refusing = zip(decision.states, planned.max_delays)
            max_wait = min([max_delay for state, max_delay in refusing if not state.allowed])
            (decision,) = await self._store.take([replace(planned.takes[0], max_wait=max_wait)])
            self.delayed += decision.allowed
        return await apply_penalties(self._store, decision) if planned.checks_blocks else decision

    def _count(self, decision: Decision) -> None:
        """Count a decision, once for each of its rules."""
        by_name: dict[str, tuple[str, bool]] = {}
        for charge, state in zip(decision.take.charges if decision.take else (), decision.states):
            name = charge.name or DEFAULT_NAME
            by_name[name] = charge.key, not state.allowed or (name in by_name and by_name[name][1])
        for name, (key, is_refused) in by_name.items():
            self.rules[name].add(key, decision.now_us, is_refused)


async def _evaluated(plan: Plan, scope: Scope) -> PlannedTakes | None:
    """What a request takes; ``None`` for nothing, and where a function fails whose rule then lets nobody pass."""
    try:
        return await plan.evaluate(scope)
    except LimitUnavailable:
        return None


def _with_cost(take: Take, cost: float) -> Take:
    return replace(take, charges=tuple([replace(charge, cost=cost) for charge in take.charges]))
