"""The enforcer of a middleware, and of the dependencies behind it: it takes, waits, punishes, counts, and refuses.

The dependencies of an app without a middleware have one of their own. Charging by outcome: each request is settled to
its actual cost, which its answer determines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..buckets import DEFAULT_NAME
from ..clock import SECOND_NS, monotonic_ns
from ..counts import Counts, counts_of
from ..decision import Decision, Take, checked_actual, is_outage, without
from ..errors import StoreError
from ..headers.header_rendering import Dialect, HeaderOptions
from ..hooks import Event, Hooks, ObservedRequest, RouteOf
from ..keys import KeyFunction, client_ip
from ..limiter import as_store
from ..stores import Decisions, MemoryStore, Store, settle
from .delays import MAX_WAITING, Receiving, Taken, give_back, see_through, take_one, wait
from .penalties import BlockCheck, apply_penalties, is_blocked
from .plan import Plan
from .refusals import FINAL, STARTS, AppArguments, OnLimited, own_answer, refusing_name, send_refusal
from .rules import CompiledRule
from .user_functions import SETTLE_USE, Failures

Handler: TypeAlias = Callable[[Any, Any], Any]  # an exception handler, as in Starlette and FastAPI


@dataclass(slots=True, eq=False)
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

    def answer_of(self, decision: Decision) -> OnLimited | None:
        """The ``on_limited`` that answers a refusal: that of the rule with the longest wait, or that for all."""
        own = self.on_limited_of.get(refusing_name(decision) or "") if self.on_limited_of else None
        return own or self.on_limited

    async def refuse(
        self, reported: Sequence[Decision], decision: Decision, connection: AppArguments, on_limited: OnLimited | None
    ) -> None:
        """Answer a request that ``decision`` refused; ``send`` adds headers about all reported decisions.

        During an outage of the store, if no quota refused, ``on_limited`` is not called.
        """
        own = None
        if on_limited is not None and not is_outage(decision):
            try:
                own = await own_answer(on_limited, connection[0], decision)
            except Exception as error:  # noqa: BLE001  # a function of the user's, which may raise whatever it likes
                name = self.name if on_limited is self.on_limited else refusing_name(decision) or self.name
                self.failures.report(name, "on_limited", "the usual answer is given", error)
        retry_after = self.options.retry_after(decision)
        await send_refusal(decision, reported, retry_after, connection, own, by_block=is_blocked(decision))


# Dependencies that have neither a store of their own nor a middleware around them


STATE = "rate_limit_store"  # the attribute of `app.state` that is the store, or its URL, of an app's dependencies

INHERITED_KEY = client_ip()  # the key of a limit that has neither its own key nor one from a middleware


def enforcer_of(store: Store) -> Enforcer:
    """The enforcer for the limits of dependencies in a store of their own."""
    return Enforcer(DEFAULT_NAME, store, INHERITED_KEY, HeaderOptions(), Hooks(()))


class AppStores:
    """Which store the dependencies of each app use: ``app.state.rate_limit_store``, the default, or its own memory."""

    def __init__(self) -> None:
        self._default: Store | str | None = None
        # The store as it is configured for each app, and the enforcer on it; this object stands for no app
        self._enforcers: WeakKeyDictionary[Any, tuple[object, Enforcer]] = WeakKeyDictionary()
        self.replacement: Enforcer | None = None  # the enforcer of all limits without a middleware, in tests

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


# Charging by outcome


_BODIES = frozenset({"http.response.body", "websocket.http.response.body"})
_FILES = frozenset({"http.response.pathsend", "http.response.zerocopysend"})
_SWITCHING = 101
_REJECTED = 403  # the status with which servers answer a handshake that is closed before it was accepted


@dataclass(slots=True, eq=False)
class Settling:
    """An app around another one, which settles a request's decisions by its answer: once, as early as possible.

    The request was charged before, so that a burst of guesses cannot pass between check and charge. A request without
    an answer stays charged.
    """

    app: ASGIApp
    store: Store
    plan: Plan
    decisions: Sequence[Decision]
    _status: int | None = None
    _raw_headers: Iterable[tuple[bytes, bytes]] = ()
    _sent: int = 0
    _is_head: bool = False
    _is_settled: bool = False
    _send: Send = field(init=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._is_head, self._send = scope.get("method") == "HEAD", send
        try:
            await self.app(scope, receive, self._settling_send)
        except Exception as error:
            if self._status is None:
                self._status = error.status_code if isinstance(error, HTTPException) else 500
            raise
        finally:
            if self._status is not None and not self._is_settled:
                await self._settle()

    def _settling_send(self, message: Message) -> Awaitable[None]:
        if self._is_settled or not self._note(message):
            return self._send(message)
        return self._settle_and_send(message)

    async def _settle_and_send(self, message: Message) -> None:
        await self._settle()
        await self._send(message)

    def _note(self, message: Message) -> bool:
        """Note what settle functions take; return whether this message completes it."""
        kind = message["type"]
        if kind in STARTS and message.get("status", FINAL) >= FINAL:
            self._status = message.get("status", _SWITCHING)
            self._raw_headers = message.get("headers", ())
            return not self.plan.settles_by_bytes
        if kind == "websocket.close" and self._status is None:
            self._status = _REJECTED
            return True
        if kind in _FILES:  # the server reads the file by itself
            length = self._headers.get("content-length", "")
            self._sent += message.get("count") or (int(length) if length.isascii() and length.isdigit() else 0)
        if kind in _BODIES:
            self._sent += len(message.get("body", b""))
        return (kind in _BODIES or kind in _FILES) and not message.get("more_body", False)

    @property
    def _headers(self) -> Headers:
        return Headers(raw=list(self._raw_headers))

    def _settle(self) -> Awaitable[None]:
        """Settle every decision, even if the request has been cancelled."""
        self._is_settled = True
        if self.store.in_process and self.plan.settles_at_once:
            return self._settle_decisions()
        return see_through([self.store], self._settle_decisions)

    async def _settle_decisions(self) -> None:
        """Settle each charge by the rule of its name, whose function is called once."""
        rules = self.plan.settling
        actual: dict[str | None, float | None] = {}
        for decision in self.decisions:
            costs: list[float | None] = []
            for charge in decision.charges:
                rule = rules.get(charge.name)
                if rule is not None and charge.name not in actual:
                    actual[charge.name] = await self._actual_cost(rule)
                costs.append(actual.get(charge.name))
            with suppress(StoreError):  # which the store has logged; the charge stands
                await settle(self.store, decision, costs)

    async def _actual_cost(self, rule: CompiledRule) -> float | None:
        """The result of the rule's settle function; ``None``, also if it fails, leaves the cost as charged."""
        function: Any = rule.settle
        sent = (self._sent * (not self._is_head),) if rule.settles_by_bytes else ()
        try:
            cost = function(self._status, self._headers, *sent)
            if hasattr(cost, "__await__"):
                cost = await cost
            return None if cost is None else checked_actual(cost, SETTLE_USE)
        except Exception as error:  # noqa: BLE001  # a function of the user's, which may raise whatever it likes
            rule.failures.report(rule.name, "settle", "requests stay charged as they were", error)
            return None
