"""The enforcer of a middleware, and of the dependencies behind it: it takes, counts, and calls the hooks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from starlette.types import Scope

from ..clock import SECOND_NS, monotonic_ns
from ..counts.process_counts import Counts, counts_of
from ..decision import Decision, Take, without
from ..headers import Dialect
from ..hooks import Hooks, ObservedRequest, RouteOf
from ..keys.base import KeyFunction
from ..stores import Decisions, Store
from .delays import MAX_WAITING, Receiving, SuccessiveTakes, Taken, WaitingCount, WaitingRequests, joined
from .functions.connection_functions import Failures
from .penalties.block_checks import BlockCheck
from .penalties.strikes import apply_penalties
from .plan import Layout, Planned, in_parts
from .responses.refusal_answers import OnLimited, Refusal

Handler: TypeAlias = Callable[[Any, Any], Any]
"""An exception handler, as in Starlette and FastAPI."""


@dataclass(slots=True, eq=False)
class Enforcer:
    """What a middleware and the dependencies behind it share: the store they take from, and how they answer.

    ``key`` is for dependencies without a key of their own.
    """

    name: str
    store: Store
    key: KeyFunction
    dialect: Dialect | None
    refusal: Refusal
    hooks: Hooks
    waiting_count: WaitingCount = field(default_factory=lambda: WaitingCount(MAX_WAITING))
    """How many requests wait, and how many may wait at a time."""
    successive_takes: SuccessiveTakes = field(default_factory=SuccessiveTakes)
    waiting_requests: WaitingRequests = field(init=False)
    failures: Failures = field(init=False)
    """Failures of the functions of dependencies are reported here."""
    on_limited: Mapping[str, OnLimited] = field(default_factory=dict)
    """The ``on_limited`` of rules, by their names."""
    handler: Handler | None = None
    """The app's own handler for refusals."""
    route_of: RouteOf = lambda scope: None
    """The template of a request's route, for hooks."""
    counts: Counts = field(init=False)
    is_observed: bool = field(init=False)

    def __post_init__(self) -> None:
        self.counts = counts_of(self.store)
        self.failures = Failures(self.hooks, self.counts)
        self.waiting_requests = WaitingRequests(self.store, self.successive_takes)
        self.is_observed = bool(self.hooks)
        self.hooks.watch(self.store)

    def take(
        self, planned: Planned, scope: Scope, receiving: Receiving | None = None, outer: Enforcer | None = None
    ) -> Decisions | Awaitable[list[Decision]]:
        """The decision on each planned take. Penalties are applied, decisions are counted, and the hooks are called.

        A request that may wait instead of being refused waits here, and needs ``receiving``. ``outer`` is the enforcer
        of the middleware around the app, by default this one: it calls its hooks, and counts the waiting requests.
        """
        layout, _, takes = planned
        if not takes:  # only its messages are limited
            return Decisions()
        observer, since_ns = outer or self, monotonic_ns()
        answer = self._take_parts(takes) if layout.is_split else self.store.take(takes)
        if type(answer) is not Decisions or not layout.is_final:
            return self._finished(layout, answer, scope, since_ns, receiving, observer)
        self.counts.count(answer)
        if observer.is_observed:
            observer.observe(answer, scope, (monotonic_ns() - since_ns) / SECOND_NS)
        return answer

    async def _finished(
        self,
        layout: Layout,
        answer: Awaitable[list[Decision]],
        scope: Scope,
        since_ns: int,
        receiving: Receiving | None,
        observer: Enforcer,
    ) -> list[Decision]:
        """The decisions of a store on a server, or those that do not stand as they are."""
        decisions = await answer
        taken_ns, waited = monotonic_ns() - since_ns, None
        if not self.store.in_process:
            self.counts.waits.add(taken_ns)
        if not layout.is_final:
            decisions, waited = await self._changed(layout, decisions, receiving, observer)
        self.counts.count(decisions)
        if observer.is_observed:
            observer.observe(decisions, scope, taken_ns / SECOND_NS, waited)
        return decisions

    async def _changed(
        self, layout: Layout, decisions: Sequence[Decision], receiving: Receiving | None, outer: Enforcer
    ) -> tuple[list[Decision], float | None]:
        """The decisions after the wait, after penalties, and with those of shadow rules marked.

        Also the seconds that the request has waited, ``None`` if it has not.
        """
        waited, finished = None, [replace(decision, shadow=True) for decision in decisions[layout.is_enforced :]]
        if layout.is_enforced:
            decision, has_gone = decisions[0], False
            if receiving is not None and layout.max_delays and not decision.allowed:
                decision, waited = await self._wait(decision, layout.max_delays, receiving, outer)
                has_gone, receiving.waited = receiving.is_gone, decision.delay or waited
            if layout.checks_blocks:  # there is no reason to punish a client that has gone
                decision = without(decision, BlockCheck) if has_gone else await apply_penalties(self.store, decision)
            finished.insert(0, decision)
        return finished, waited or None

    async def take_more(self, store: Store, take: Take, scope: Scope, taken: Sequence[Taken]) -> Decision:
        """The decision on another take of a request, from the store of an earlier one; the hooks are called with it.

        ``taken`` are the takes that came before it; a request that is cancelled gives all of them back. Only a refusal
        is counted: the request was counted when it was admitted.
        """
        since_ns = monotonic_ns()
        decision = await self.successive_takes.take(store, take, taken)
        if not decision.allowed:
            counts_of(store).count((decision,))
        if self.is_observed:
            self.observe([decision], scope, (monotonic_ns() - since_ns) / SECOND_NS)
        return decision

    def observe(
        self, decisions: Sequence[Decision], scope: Scope, latency: float | None, waited: float | None = None
    ) -> None:
        """Call the hooks with the decisions of one answer of the store; the times belong to the first decision."""
        request = ObservedRequest(scope, self.route_of)
        for place, decision in enumerate(decisions):
            if place == 0:
                self.hooks(self.name, decision, latency, waited, request)
            else:
                self.hooks(self.name, decision, request=request)

    async def _wait(
        self, refusal: Decision, max_delays: Sequence[float], receiving: Receiving, outer: Enforcer
    ) -> tuple[Decision, float]:
        """Wait in the queue of the middleware around the app."""
        outer.hooks.queued(outer.name, 1)
        try:
            return await self.waiting_requests.wait(refusal, max_delays, receiving, outer.waiting_count)
        finally:
            outer.hooks.queued(outer.name, -1)

    async def _take_parts(self, takes: Sequence[Take]) -> list[Decision]:
        """The decisions on takes of which the first is split over several: it is allowed if all of its parts are.

        The first part that is refused decides, and what the parts before it took is given back. A request that is
        cancelled in between gives everything back too.
        """
        (whole, *others), taken = takes, list[Taken]()
        for part in in_parts(whole.charges):
            decision = await self.successive_takes.take(self.store, replace(whole, charges=part), taken)
            if not decision.allowed:
                await self.successive_takes.give_back(taken)
                break
            taken.append((self.store, decision))
        else:
            decision = joined(whole, [each for _, each in taken])
        return [decision, *(await self.store.take(others) if others else ())]
