"""The enforcer of a middleware, and of the dependencies behind it: it takes, waits, punishes, counts.

The dependencies of an app without a middleware have one of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

from starlette.types import Scope

from ..buckets import DEFAULT_NAME
from ..clock import SECOND_NS, monotonic_ns
from ..counts import Counts, counts_of
from ..decision import Decision, Take, without
from ..headers import Dialect, draft
from ..hooks import Event, Hooks, ObservedRequest, RouteOf
from ..keys import KeyFunction, client_ip
from ..limiter import as_store
from ..stores import Decisions, MemoryStore, Store
from .delays import MAX_WAITING, Receiving, Taken, give_back, take_one, wait
from .functions import Failures
from .penalties import BlockCheck, apply_penalties
from .plan import Plan
from .refusals import OnLimited, Refusal
from .rules import CompiledRule

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
    max_waiting: int = MAX_WAITING
    """How many requests may wait at a time, over the stores of a middleware and of the dependencies behind it."""
    waiting: Counter[str] = field(default_factory=Counter)
    """How many wait now, by key."""
    failures: Failures = field(init=False)
    """Failures of the functions of dependencies are reported here."""
    on_limited: Mapping[str, OnLimited] = field(default_factory=dict)
    """The ``on_limited`` of rules, by their names."""
    default: CompiledRule | None = None
    """The quota of the middleware, if it is no function: a dependency whose quota fails leaves it at that."""
    handler: Handler | None = None
    """The app's own handler for refusals."""
    route_of: RouteOf = lambda scope: None
    """The template of a request's route, for hooks."""
    counts: Counts = field(init=False)
    is_observed: bool = field(init=False)

    def __post_init__(self) -> None:
        self.counts = counts_of(self.store)
        self.failures = Failures(self.hooks, self.counts)
        self.is_observed = bool(self.hooks)
        self.hooks.watch(self.store)

    async def take(
        self,
        plan: Plan,
        takes: Sequence[Take],
        scope: Scope,
        receiving: Receiving | None = None,
        outer: Enforcer | None = None,
    ) -> list[Decision]:
        """The decision on each take of a plan. Penalties are applied, decisions are counted, and the hooks are called.

        A request that may wait instead of being refused waits here, and needs ``receiving``. ``outer`` is the enforcer
        of the middleware around the app, by default this one: it calls its hooks, and counts the waiting requests.
        """
        outer, since_ns = outer or self, monotonic_ns()
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
            with outer.counting(key):
                decision, is_gone = await wait(self.store, decision, plan.max_delays(decision.take), receiving)
        if is_gone or not plan.punishes:  # there is no reason to punish a client that has gone
            return without(decision, BlockCheck)
        return await apply_penalties(self.store, decision)

    def is_full_for(self, key: str) -> bool:
        """Whether one more request of this key may not wait.

        A quarter of the places is kept for others than the key that has the most: a client may leave without notice.
        """
        most, waiting = self.max_waiting, self.waiting
        return waiting.total() >= most or waiting[key] >= most - most // 4

    @contextmanager
    def counting(self, key: str) -> Iterator[None]:
        """Count a request that waits meanwhile."""
        self.waiting[key] += 1
        self.hooks.queued(self.name, 1)
        try:
            yield
        finally:
            self.hooks.queued(self.name, -1)
            self.waiting[key] -= 1
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


# Dependencies that have neither a store of their own nor a middleware around them


STATE = "rate_limit_store"
"""The attribute of ``app.state`` that is the store, or its URL, of an app's dependencies."""

INHERITED_KEY = client_ip()
"""The key of a limit that has neither its own key nor one from a middleware."""


def enforcer_of(store: Store) -> Enforcer:
    """The enforcer for the limits of dependencies in a store of their own."""
    return Enforcer(DEFAULT_NAME, store, INHERITED_KEY, draft, Refusal(), Hooks(()))


class AppStores:
    """Which store the dependencies of each app use: ``app.state.rate_limit_store``, the default, or its own memory."""

    def __init__(self) -> None:
        self._default: Store | str | None = None
        self._enforcers: WeakKeyDictionary[Any, tuple[object, Enforcer]] = WeakKeyDictionary()
        """The store as it is configured for each app, and the enforcer on it; this object stands for no app."""
        self.replacement: Enforcer | None = None
        """The enforcer of all limits without a middleware, in tests."""

    def set_default(self, store: Store | str | None) -> None:
        """Set the store of all apps whose state names none; ``None`` for a memory store for each app."""
        self._default = None if store is None else as_store(store)
        self._enforcers.clear()

    def enforcer_for(self, scope: Scope) -> Enforcer:
        """The enforcer of the limits of a request's app; it is determined anew if the state of the app has changed."""
        if self.replacement is not None:
            return self.replacement
        app = self if scope.get("app") is None else scope["app"]
        configured = getattr(getattr(app, "state", None), STATE, self._default)
        before, enforcer = self._enforcers.get(app, (None, None))
        if enforcer is None or before is not configured:
            enforcer = enforcer_of(as_store(configured))
            self._enforcers[app] = configured, enforcer
        return enforcer

    @contextmanager
    def replaced(self, store: MemoryStore) -> Iterator[None]:
        """Within this context, all limits without a middleware are in this store."""
        before, self.replacement = self.replacement, enforcer_of(store)
        try:
            yield
        finally:
            self.replacement = before


app_stores = AppStores()
