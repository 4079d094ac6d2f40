"""The enforcer of a middleware, and of the dependencies behind it: it takes, waits, punishes, counts, and refuses.

The dependencies of an app without a middleware have one of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from starlette.types import Scope

from ..clock import SECOND_NS, monotonic_ns
from ..counts import Counts, counts_of
from ..decision import Decision, Take, is_outage, without
from ..headers.header_rendering import Dialect, HeaderOptions, violated
from ..hooks import Event, Hooks, ObservedRequest, RouteOf
from ..keys import KeyFunction
from ..stores import Decisions, Store
from .delays import MAX_WAITING, Receiving, wait
from .penalties import BlockCheck, apply_penalties, is_blocked
from .plan import Plan
from .refusals import AppArguments, OnLimited, Problem, adding, own_answer, refusing_name, send_problem
from .rules import CompiledRule
from .settling import Taken, give_back, take_one
from .user_functions import Failures

Handler: TypeAlias = Callable[[Any, Any], Any]  # an exception handler, as in Starlette and FastAPI


@dataclass(slots=True, eq=False, weakref_slot=True)
class Enforcer:
    """What a middleware and the dependencies behind it share: the store they take from, and how they answer.

    ``key`` is for dependencies without a key of their own.
    """

    name: str
    store: Store
    key: KeyFunction
    options: HeaderOptions
    hooks: Hooks
    on_limited: OnLimited | None = None  # the answer to refusals by rules that have none of their own
    # How many requests may wait at a time, over the stores of a middleware and of the dependencies behind it
    max_waiting: int = MAX_WAITING
    waiting: Counter[str] = field(default_factory=Counter)  # how many wait now, by key
    on_limited_of: Mapping[str, OnLimited] = field(default_factory=dict)  # the `on_limited` of rules, by their names
    # The quota of the middleware, if it is no function: a dependency whose quota fails leaves it at that
    default: CompiledRule | None = None
    handler: Handler | None = None  # the app's own handler for refusals
    route_of: RouteOf = lambda scope: None  # the template of a request's route, for hooks
    dialect: Dialect | None = field(init=False)
    counts: Counts = field(init=False)
    failures: Failures = field(init=False)  # failures of functions of the program are reported here
    is_observed: bool = field(init=False)

    def __post_init__(self) -> None:
        self.dialect = self.options.request_dialect()
        self.counts = counts_of(self.store)
        self.failures = Failures(self.hooks, self.counts)
        self.is_observed = bool(self.hooks)
        self.hooks.watch(self.store)

    async def take(
        self, plan: Plan, takes: Sequence[Take], scope: Scope, receiving: Receiving | None, outer: Enforcer
    ) -> list[Decision]:
        """The decision on each take of a plan. Penalties are applied, decisions are counted, and the hooks are called.

        A request that may wait instead of being refused waits here, and needs ``receiving``. ``outer`` is the enforcer
        of the middleware around the app, perhaps this one: it calls its hooks, and counts the waiting requests.
        """
        since_ns = monotonic_ns()
        if plan.holds and not self.store.in_process:
            # A request that is cancelled meanwhile keeps no place: the enforced take comes last
            decisions = [await take_one(self.store, take) for take in reversed(takes)][::-1]
        else:
            answer = self.store.take(takes)
            decisions = answer if type(answer) is Decisions else await answer
        taken_ns = monotonic_ns() - since_ns
        if not self.store.in_process:
            self.counts.waits.add(taken_ns)
        if not plan.is_final:
            decisions = [await self._final(plan, decision, receiving, outer) for decision in decisions]
        self.counts.count(decisions)
        if outer.is_observed:
            outer.observe(decisions, scope, taken_ns / SECOND_NS)
        return decisions

    async def _final(self, plan: Plan, decision: Decision, receiving: Receiving | None, outer: Enforcer) -> Decision:
        """A decision after the wait and after penalties, or marked as that of a rule in shadow."""
        if decision.charges[0].name in plan.shadows:
            return replace(decision, shadow=True)
        key, is_gone = decision.charges[0].key, False
        if plan.may_wait and not decision.allowed and receiving is not None and not outer.is_full_for(key):
            outer.count_waiting(key, 1)
            try:
                decision, is_gone = await wait(self.store, decision, plan.max_delays(decision.take), receiving)
            finally:
                outer.count_waiting(key, -1)
        if is_gone or not plan.punishes:  # there is no reason to punish a client that has gone
            return without(decision, BlockCheck)
        return await apply_penalties(self.store, decision)

    def is_full_for(self, key: str) -> bool:
        """Whether one more request of this key may not wait.

        A quarter of the places is kept for others than the key that has the most: a client may leave without notice.
        """
        most, waiting = self.max_waiting, self.waiting
        return waiting.total() >= most or waiting[key] >= most - most // 4

    def count_waiting(self, key: str, change: int) -> None:
        """Count a request that begins or ends to wait."""
        self.waiting[key] += change
        self.hooks.queued(self.name, change)
        if not self.waiting[key]:
            del self.waiting[key]

    async def take_more(self, store: Store, take: Take, scope: Scope, taken: Sequence[Taken]) -> Decision:
        """The decision on another take of a request, from the store of an earlier one; the hooks are called with it.

        ``taken`` are the takes that came before it; a request that is cancelled gives all of them back. Only a refusal
        is counted: the request was counted when it was admitted.
        """
        since_ns = monotonic_ns()
        try:
            decision = await take_one(store, take)
        except BaseException:
            await give_back(taken)
            raise
        if not decision.allowed:
            counts_of(store).count((decision,))
        if self.is_observed:
            self.observe([decision], scope, (monotonic_ns() - since_ns) / SECOND_NS)
        return decision

    def observe(self, decisions: Sequence[Decision], scope: Scope, latency: float | None) -> None:
        """Call the hooks with the decisions of one answer of the store; the times belong to the first decision."""
        request, waited = ObservedRequest(scope, self.route_of), None
        for decision in decisions:
            if decision.delay and not decision.shadow:
                waited = decision.delay
            self.hooks(Event(self.name, decision, latency, waited, request))
            latency = waited = None

    def on_limited_for(self, decision: Decision) -> OnLimited | None:
        """The program's own answer to a refusal: that of the rule that refused, or else that of the middleware."""
        name = refusing_name(decision) if self.on_limited_of else None
        return self.on_limited_of.get(name or "", self.on_limited)

    async def refuse(
        self, reported: Sequence[Decision], decision: Decision, connection: AppArguments, own: OnLimited | None
    ) -> None:
        """Answer a request that ``decision`` refused; ``send`` adds headers about all reported decisions.

        The answer is that of the program's ``own`` function, or, without one, problem details. During an outage of the
        store, if no quota refused, it is not called.
        """
        (scope, receive, send), retry_after = connection, self.options.retry_after(decision)
        kind = Problem.UNAVAILABLE if is_outage(decision) else Problem.QUOTA_EXCEEDED
        if own is not None and kind is not Problem.UNAVAILABLE:
            try:
                answer = await own_answer(own, scope, decision)
            except Exception as error:  # noqa: BLE001  # a function of the user's, which may raise whatever it likes
                name = self.name if own is self.on_limited else refusing_name(decision) or self.name
                self.failures.report(name, "on_limited", "the usual answer is given", error)
                answer = None
            if answer is not None:
                await answer(scope, receive, adding(retry_after, send))
                return
        if is_blocked(decision):
            kind = Problem.ABNORMAL_USAGE
        policies = violated(reported) if kind is Problem.QUOTA_EXCEEDED else ()
        await send_problem(kind, retry_after, scope, send, policies)
