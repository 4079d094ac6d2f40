"""What is decided of a request, and the enforcer that decides it: it takes, waits, punishes, counts, and refuses.

A middleware has an enforcer for itself and the dependencies behind it. The dependencies of an app without a middleware
have one of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from anyio.lowlevel import checkpoint
from starlette.types import Message, Scope, Send

from ..algorithms.take import State
from ..clock import monotonic_us
from ..counts import Counts, counts_of
from ..decision import Decision, Take, is_outage, with_charges, without
from ..headers.header_rendering import LEGACY_NAMES, Dialect, Header, HeaderOptions, delay, draft, violated
from ..hooks import Event, Hooks, ObservedRequest, RouteOf
from ..keys import KeyFunction
from ..leases import Leases, leases_of
from ..quotas import SECOND_US, InFlight, has_places
from ..stores.base import Decisions, Store, lock
from .delays import Receiving, wait
from .penalties import BlockCheck, apply_penalties, is_blocked
from .plan import MAX_WAITING, Plan
from .refusals import FINAL, STARTS, AppArguments, OnLimited, Problem, ends_answer, own_answer, refused_by, send_problem
from .rules import CompiledRule
from .settling import Taken, give_back, take_one
from .user_functions import Failures

# Makes an answer to a refusal of the app's own exception handler; ``None`` if that does not answer such a connection
Handler: TypeAlias = Callable[[Any, AppArguments], OnLimited | None]


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

    def __post_init__(self) -> None:
        self.dialect = self.options.request_dialect()
        self.counts = counts_of(self.store)
        self.failures = Failures(self.hooks, self.counts)
        self.hooks.watch(self.store)

    async def take(
        self, plan: Plan, takes: Sequence[Take], scope: Scope, receiving: Receiving | None, outer: Enforcer
    ) -> list[Decision]:
        """The decision on each take of a plan. Penalties are applied, decisions are counted, and the hooks are called.

        A request that may wait instead of being refused waits here, and needs ``receiving``. ``outer`` is the enforcer
        of the middleware around the app, perhaps this one: it calls its hooks, and counts the waiting requests.
        """
        is_remote = not self.store.in_process
        decisions: list[Decision] = []
        since_us = monotonic_us() if is_remote or outer.hooks else 0.0
        try:
            if plan.holds and is_remote and has_places([each.quota for take in takes for each in take.charges]):
                for take in reversed(takes):  # a request that is cancelled meanwhile keeps no place
                    decisions.insert(0, await take_one(self.store, take))
            else:
                answer = self.store.take(takes)
                decisions = answer if type(answer) is Decisions else await answer
            taken_us = monotonic_us() - since_us if since_us else 0.0
            if is_remote:
                self.counts.waits.add(taken_us)
            if not plan.is_final:
                decisions = [await self._final(plan, decision, receiving, outer) for decision in decisions]
            self.counts.count(decisions)
            if since_us and outer.hooks:
                outer.observe(decisions, scope, taken_us / SECOND_US)
            return decisions
        except BaseException:  # it is cancelled, perhaps while it waits beside a rule in shadow
            await give_back([(self.store, decision) for decision in decisions])
            raise

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
        return self.waiting.total() >= self.max_waiting or self.waiting[key] >= self.max_waiting - self.max_waiting // 4

    def count_waiting(self, key: str, change: int) -> None:
        """Count a request that begins or ends to wait."""
        with lock:  # event loops of other threads count, too
            self.waiting[key] += change
            if not self.waiting[key]:
                del self.waiting[key]
        self.hooks.queued(self.name, change)

    async def take_more(self, store: Store, take: Take, scope: Scope, taken: Sequence[Taken]) -> Decision:
        """The decision on another take of a request, from the store of an earlier one; the hooks are called with it.

        ``taken`` are the takes that came before it; a request that is cancelled gives all of them back. Only a refusal
        is counted: the request was counted when it was admitted.
        """
        since_us = monotonic_us()
        try:
            decision = await take_one(store, take)
        except BaseException:
            await give_back(taken)
            raise
        if not decision.allowed:
            counts_of(store).count((decision,))
        if self.hooks:
            self.observe([decision], scope, (monotonic_us() - since_us) / SECOND_US)
        return decision

    def observe(self, decisions: Sequence[Decision], scope: Scope, latency: float | None) -> None:
        """Call the hooks with the decisions of one answer of the store; the times belong to the first decision."""
        request = ObservedRequest(scope, self.route_of)
        for decision in decisions:
            waited = None if decision.shadow else decision.delay or None
            self.hooks(Event(self.name, decision, latency, waited, request))
            latency = None


# The limits of one request

# The most decisions that are kept of one request: a WebSocket may charge for each of any number of messages
MOST_TAKEN = 100


@dataclass(eq=False)
class RequestLimits:
    """The decisions on one request so far; ``send`` adds headers about them to the start of the answer.

    Inner limits add their decisions to the outermost request limits. Request limits that a dependency starts, without a
    middleware around it, have no ``server_send``, and only collect decisions.
    """

    enforcer: Enforcer
    server_send: Send | None
    # Whether the client is on the list of clients that are never limited, not even by dependencies
    is_exempt: bool = False
    # All decisions on this request but those of rules in shadow, in order, each with the store that made it
    taken: Sequence[Taken] = field(init=False, default=())
    # Those that headers report, with the newest state of each bucket
    reported: Sequence[Decision] = field(init=False, default=())
    has_started: bool = field(init=False, default=False)
    waited: float = field(init=False, default=0.0)  # how many seconds the request has waited for slots
    # That of the innermost middleware, whose key and store dependencies use
    inner: Enforcer | None = field(init=False, default=None)
    # The headers that a refusal adds to the program's own answer, and the lowest status of an answer that gets them
    retry_after: tuple[Sequence[Header], int] | None = field(init=False, default=None)
    # The decisions whose places in flight the request holds until its answer has ended, and the hooks that see them
    held: Sequence[tuple[Leases, Decision, Hooks]] = field(init=False, default=())
    # The answer that replaces the app's, whatever the app sends: its status, and what sends it. It counts only until
    # an answer has begun
    pending: tuple[int, Callable[[], Awaitable[None]]] | None = field(init=False, default=None)

    def send(self, message: Message) -> Awaitable[None]:
        """Send a message of the answer, with headers if it starts the answer; all other messages pass unchanged."""
        if not self.has_started and message["type"] in STARTS and message.get("status", FINAL) >= FINAL:
            if self.pending is not None:
                return self._answer_instead(self.pending[1])
            self.has_started = True
            if self.retry_after is not None and message.get("status", FINAL) >= self.retry_after[1]:
                own = [*message.get("headers", ())]
                lacking = [each for each in self.retry_after[0] if each[0] not in [name.lower() for name, _ in own]]
                message = {**message, "headers": [*own, *lacking]}
            dialect = self.enforcer.dialect
            if dialect is not None and (self.reported or self.waited):
                headers, more = [*message.get("headers", ())], dialect(self.reported) if self.reported else ()
                if dialect is not draft and not LEGACY_NAMES.isdisjoint([name.lower() for name, _ in headers]):
                    more = [each for each in more if each[0] not in LEGACY_NAMES]
                headers += more
                if self.waited:
                    headers.append(delay(self.waited))
                message = {**message, "headers": headers}
        if self.held and ends_answer(message):
            return self._send_last(message)
        return self.server_send(message)  # type: ignore[misc]  # nobody calls this without one

    async def _send_last(self, message: Message) -> None:
        """Send the end of the answer: background tasks, which come after it, hold no place."""
        try:
            await self.server_send(message)  # type: ignore[misc]  # as above
        finally:
            self.release()

    def release(self) -> None:
        """Give the places in flight back that this request holds."""
        held, self.held = self.held, ()
        for leases, decision, hooks in held:
            leases.release(decision)
            hooks.held(decision, -1)

    async def send_pending(self) -> bool:
        """Send the pending answer, if the app has sent none; return whether that is so."""
        if self.pending is None or self.has_started:
            return False
        await self.pending[1]()
        return True

    async def _answer_instead(self, answer: Callable[[], Awaitable[None]]) -> None:
        """Send an answer instead of the app's, of which nothing is sent."""
        await answer()
        self.server_send = lambda message: checkpoint()  # nothing is sent of an answer that another one has replaced

    def add(self, plan: Plan, decisions: Sequence[Decision], store: Store, hooks: Hooks) -> Decision | None:
        """Add the decisions on the takes of a plan; return the enforced one, if there is one.

        The places in flight of all of them, which these hooks see, are held until the answer has ended.
        """
        if plan.holds:
            for each in decisions:
                if InFlight in [type(charge.quota) for charge in each.charges]:  # a function may also return rates
                    (leases := leases_of(store)).hold(each)
                    hooks.held(each, 1)
                    self.held = *self.held, (leases, each, hooks)
        decision = decisions[0]
        if decision.shadow:
            return None
        self.taken, self.reported = (*self.taken, (store, decision)), (*self.reported, decision)
        if plan.may_wait:
            self.waited += decision.delay
        return decision

    def add_update(self, decision: Decision, store: Store) -> None:
        """Add a decision on buckets that were charged before: headers report their new states."""
        newer = {charge.bucket: state for charge, state in zip(decision.charges, decision.stored)}
        reported = [_updated(each, newer) for each in self.reported]
        if not decision.allowed:
            reported = [_refused(each, decision) for each in reported]
        self.taken, self.reported = (*self.taken, (store, decision))[:MOST_TAKEN], reported

    async def refund_all(self) -> None:
        """Give back everything that this request was charged; what a store cannot take back now stays charged.

        Headers report these buckets as they are afterwards.
        """
        taken = [(store, decision) for store, decision in self.taken if decision.allowed and decision.id]
        states = await give_back(taken)
        self.reported = [_updated(each, states) if each.allowed else each for each in self.reported]

    async def answer(
        self, decision: Decision, connection: AppArguments, enforcer: Enforcer, on_limited: OnLimited | None = None
    ) -> None:
        """Answer a request that ``decision`` refused, as the rule, the middleware or the app's own handler says.

        ``send`` adds headers about all reported decisions. Without a function of the program's, the answer is problem
        details. During an outage of the store, if no quota refused, none is called.
        """
        (scope, receive, send), retry_after = connection, enforcer.options.retry_after(decision)
        kind = Problem.ABNORMAL_USAGE if is_blocked(decision) else Problem.QUOTA_EXCEEDED
        kind = Problem.UNAVAILABLE if is_outage(decision) else kind
        if kind is not Problem.QUOTA_EXCEEDED:
            self.reported = [each for each in self.reported if each is not decision]
        name = refused_by(decision) if enforcer.on_limited_of else None
        own = on_limited or enforcer.on_limited_of.get(name or "", enforcer.on_limited)
        if own is None and enforcer.handler is not None:
            own = enforcer.handler(self, connection)
        if own is not None and kind is not Problem.UNAVAILABLE:
            try:
                answer = await own_answer(own, scope, decision)
                if answer is not None:
                    self.retry_after = retry_after, FINAL
                    return await answer(scope, receive, send)
            except Exception as error:  # a function of the user's, and its answer, which may raise whatever they like
                if self.has_started:
                    raise
                name = enforcer.name if own is enforcer.on_limited else refused_by(decision) or enforcer.name
                enforcer.failures.report(name, "on_limited", "the usual answer is given", error)
        policies = violated(self.reported) if kind is Problem.QUOTA_EXCEEDED else ()
        return await send_problem(kind, retry_after, scope, send, policies)


def _updated(old: Decision, newer: Mapping[str, State]) -> Decision:
    """An older decision, with the newer states of its buckets."""
    stored = [newer.get(charge.bucket, state) for charge, state in zip(old.charges, old.stored)]
    return replace(old, stored=stored)


def _refused(old: Decision, refusal: Decision) -> Decision:
    """An older decision, as the refusal of what was asked for later on the same buckets."""
    asked = {charge.bucket: charge for charge in refusal.charges}
    if asked.keys().isdisjoint([charge.bucket for charge in old.charges]):
        return old
    charges = tuple([asked.get(charge.bucket, charge) for charge in old.charges])
    return replace(old, take=with_charges(old.take, charges), allowed=False, wait_us=refusal.wait_us, id=0)
