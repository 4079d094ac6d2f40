"""Replays: the decisions of limits on the requests of a log, with the package's own rules, store and arithmetic."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ...decision import Decision
from ...inbound.penalties.strikes import apply_penalties
from ...inbound.plan import Plan
from ...inbound.responses.refusal_answers import LimitUnavailable
from ...inbound.rule_table import RuleTable
from ...stores import MemoryStore
from ..logs import LoggedRequest
from .counts import RuleCounts, Timeline
from .replayed_limits import scope_of

MOST_PATHS = 50_000
"""The number of methods and paths whose plans are kept."""


class _LogClock:
    """A clock that shows the time of the latest request of a log."""

    time_us = 0

    def now_us(self) -> int:
        return self.time_us


class Replay:
    """Decides the requests of a log under the rules of ``limits``, and counts.

    ``requests`` and ``refused`` count all of them. ``unlimited`` counts those that no rule charges, and ``keyless``
    those among them that have no key in the log. ``delayed`` counts those that would have waited for their slots.
    ``clients`` says, by the key of the log, who was refused. ``rules`` are the counts by the names of the rules.
    """

    def __init__(self, limits: RuleTable) -> None:
        self._limits = limits
        self._clock = _LogClock()
        self._store = MemoryStore(max_keys=10**12, clock=self._clock)  # none is ever forgotten
        self._plans: dict[tuple[str, str], Plan | None] = {}
        self.requests = self.refused = self.unlimited = self.keyless = self.delayed = 0
        self.clients: dict[str, bool] = {}
        self.rules = {rule.name: RuleCounts(rule.name, rule.shadow) for rule in limits.charging}
        self.timeline = Timeline()
        self.first_us = self.last_us = 0.0

    async def run(self, requests: Iterable[LoggedRequest]) -> None:
        """Replay the requests, which must come in the order of their times."""
        for request in requests:
            time_us, key, _, _ = request
            self._clock.time_us = int(time_us)
            is_refused = await self._refuses(request)
            self.requests += 1
            self.refused += is_refused
            self.clients[key] = is_refused or self.clients.get(key, False)
            self.timeline.add(time_us, is_refused)
            self.first_us, self.last_us = self.first_us or time_us, time_us

    async def _refuses(self, request: LoggedRequest) -> bool:
        """Whether a request is refused."""
        _, key, method, path = request
        scope = scope_of(request)
        try:
            plan = self._plans[method, path]
        except KeyError:
            if len(self._plans) >= MOST_PATHS:
                self._plans.clear()
            plan = self._plans[method, path] = self._limits.plan_for(scope)
        try:
            planned = None if plan is None else await plan.evaluate(scope)
        except LimitUnavailable:  # a function failed whose rule then lets nobody pass
            planned = None
        if planned is None or not planned[2]:
            self.unlimited += 1
            self.keyless += not key
            return False
        layout, _, takes = planned
        decisions = self._store.take(takes)
        if layout.is_enforced:
            decisions[0] = self._delayed(layout.max_delays, decisions[0])
            if layout.checks_blocks:
                await apply_penalties(self._store, decisions[0])  # a refusal stays one, and may block the key
        for decision in decisions:
            self._count(decision)
        return bool(layout.is_enforced) and not decisions[0].allowed

    def _delayed(self, max_delays: Sequence[float], decision: Decision) -> Decision:
        """A decision after the wait that rules allow."""
        if decision.allowed or not max_delays:
            return decision
        refusing = zip(decision.states, max_delays)
        max_wait = min([max_delay for state, max_delay in refusing if not state.allowed])
        (decision,) = self._store.take([replace(decision.take, max_wait=max_wait)])
        self.delayed += decision.allowed
        return decision

    def _count(self, decision: Decision) -> None:
        """Count a decision, once for each of its rules."""
        charges, refusing = decision.charges, set[str | None]()
        if not decision.allowed:
            refusing = {charge.name for charge, state in zip(charges, decision.states) if not state.allowed}
        for name, key in {charge.name: charge.key for charge in charges}.items():
            self.rules[name].add(key, decision.now_us, name in refusing)  # type: ignore[index]  # a plan names all
