"""Request limits: the decisions on one request so far, and what its answer reports about them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from starlette.types import Message, Scope, Send

from ..algorithms import PLAIN_PARTS, Outcome, decision_of, is_allowed, undone, wait_of
from ..clock import SECOND_NS, monotonic_ns
from ..decision import ChargeTemplate, Decision, with_states
from ..headers import LEGACY_NAMES, Dialect, Header, delay, draft
from ..hooks.events import ObservedRequest
from ..quotas import Quota
from ..stores import Store
from .enforcer import Enforcer
from .plan import PlannedCharge

SCOPE_KEY: Final = "asgi_ratelimit"
"""The entry in the scope that stores the limits of a request."""

FINAL: Final = 200
"""The lowest status of an answer; a message with a status of 1xx only announces that the answer will come."""

STARTS: Final = frozenset({"http.response.start", "websocket.accept", "websocket.http.response.start"})
"""The types of messages that start an answer."""


class RequestLimits:
    """The decisions on one request so far; ``send`` adds headers about them to the start of the answer.

    Inner limits add their decisions to the outermost request limits. Request limits that a dependency starts, without a
    middleware around it, have no ``server_send``, and only collect decisions.
    """

    enforcer: Enforcer
    server_send: Send | None
    is_exempt = False
    """Whether the client is on the list of clients that are never limited, not even by dependencies."""
    has_started = False
    waited = 0.0
    """How many seconds the request has waited for slots."""
    bucket = ""
    _charge: PlannedCharge | None = None
    _outcome: Outcome | None = None
    _decisions: list[Decision] | None = None
    _answer: Callable[[Send], Awaitable[None]] | None = None
    _stores: list[Store] | None = None
    _reported: list[Decision] | None = None

    def send(self, message: Message) -> Awaitable[None]:
        """Send a message of the answer, with headers if it starts the answer; all other messages pass unchanged."""
        if not self.has_started and message["type"] in STARTS and message.get("status", FINAL) >= FINAL:
            self.has_started = True
            if self._answer is not None:
                return self._answer_instead(self._answer)
            dialect = self.enforcer.dialect
            if dialect is draft and self._decisions is None:
                headers = self._charge.headers.of_outcome(self._outcome)  # type: ignore[union-attr, arg-type]  # it is one charge
            else:
                headers = () if dialect is None else self._rendered(dialect)
            if headers:
                message = message.copy()  # type: ignore[attr-defined]  # a dict in ASGI
                own = message.get("headers", ())
                message["headers"] = [*own, *headers] if dialect is draft else _with_one_legacy_set([*own], headers)
        return self.server_send(message)  # type: ignore[misc]  # nobody calls this without one

    def _rendered(self, dialect: Dialect) -> Sequence[Header]:
        headers = dialect(self.reported) if self.reported else ()
        return [*headers, delay(self.waited)] if self.waited else headers

    def answer_with(self, answer: Callable[[Send], Awaitable[None]] | None) -> None:
        """Make this the answer of the request, whatever the app sends from now on."""
        self._answer = None if self.has_started else answer

    def _answer_instead(self, answer: Callable[[Send], Awaitable[None]]) -> Awaitable[None]:
        """Send an answer instead of the app's, of which nothing is sent."""
        instead = self.sending_to(self.server_send)  # type: ignore[arg-type]  # nobody sends without one
        instead.has_started = False
        self._answer, self.server_send = None, _discard
        return answer(instead.send)

    @property
    def template(self) -> ChargeTemplate | None:
        """The charge, without its key, if there is just one."""
        return None if self._charge is None else self._charge.template

    @property
    def decisions(self) -> list[Decision]:
        """All decisions on this request, in order."""
        if self._decisions is None:
            template, outcome = self.template, self._outcome
            charge = None if template is None else template.charge(self.bucket)
            self._decisions = [] if charge is None or outcome is None else [decision_of(charge, outcome)]
        return self._decisions

    def observe_first(self, scope: Scope, since_ns: int) -> None:
        """Call the hooks with the first decision; its take was submitted at ``since_ns``."""
        enforcer = self.enforcer
        decision = self if self._decisions is None else self._decisions[0]
        latency = (monotonic_ns() - since_ns) / SECOND_NS
        enforcer.hooks(enforcer.name, decision, latency, None, ObservedRequest(scope, enforcer.route_of))

    @property
    def is_allowed(self) -> bool:
        """Whether the only charge was taken."""
        return self._outcome is not None and is_allowed(self._outcome)

    @property
    def refused(self) -> tuple[Quota, float] | None:
        """The quota that refused the only charge, and the microseconds to wait; ``None`` once a decision was read."""
        outcome, template = self._outcome, self.template
        if self._decisions is not None or template is None or outcome is None or is_allowed(outcome):
            return None
        return template.quota, wait_of(outcome)

    @property
    def reported(self) -> list[Decision]:
        """The decisions as headers report them, with the newest state of each bucket."""
        return self.decisions if self._reported is None else self._reported

    @property
    def stores(self) -> list[Store]:
        """The store that made each of the decisions."""
        if self._stores is None:
            self._stores = [self.enforcer.store] * len(self.decisions)
        return self._stores

    def sending_to(self, server_send: Send) -> RequestLimits:
        """The same request limits, for an answer that is sent through ``server_send``."""
        copy = limits_of_decisions(self.enforcer, server_send, self.decisions)
        copy.is_exempt = self.is_exempt
        copy.has_started, copy._stores, copy._reported = self.has_started, self.stores, self._reported
        copy.waited = self.waited
        return copy

    def add(self, decisions: Sequence[Decision], store: Store) -> None:
        """Add the decisions of an inner limit."""
        self.stores.extend([store] * len(decisions))
        self._reported = None if self._reported is None else [*self._reported, *decisions]
        self.decisions.extend(decisions)

    def add_update(self, decision: Decision, store: Store) -> None:
        """Add a decision on buckets that were charged before: headers report their new states."""
        reported = [_updated(each, decision) for each in self.reported]
        self.add([decision], store)
        self._reported = reported

    def leave_out(self, decision: Decision) -> None:
        """Keep a decision out of the headers, because no quota made it."""
        self._reported = [each for each in self.reported if each is not decision]

    async def refund_all(self) -> None:
        """Give back everything that this request was charged; what a store cannot take back now stays charged.

        Headers report these buckets as they were before the refund.
        """
        pairs = zip(self.decisions, self.stores)
        taken = [(store, decision) for decision, store in pairs if decision.allowed and not decision.settled]
        await self.enforcer.successive_takes.give_back(taken)
        for given_back in [undone(decision) for _, decision in reversed(taken) if decision.settled]:
            self._reported = [_updated(each, given_back) if each.allowed else each for each in self.reported]


def counted_limits(
    enforcer: Enforcer, server_send: Send, charge: PlannedCharge, bucket: str, outcome: Outcome | Decision
) -> tuple[RequestLimits, bool]:
    """The request limits of a planned charge, which this counts, and whether it is allowed.

    The outcome becomes a decision only when somebody reads it.
    """
    if not isinstance(outcome, tuple):  # decided without the store
        enforcer.counts.count((outcome,))
        return limits_of_decisions(enforcer, server_send, [outcome]), outcome.allowed
    counted = enforcer.counts[charge.template.name]
    counted.requests.append(bucket)
    allowed = len(outcome) == PLAIN_PARTS or is_allowed(outcome)
    if allowed:
        counted.admitted += 1
    else:
        counted.refused += 1
        counted.refusals.append(bucket)
    limits = RequestLimits()  # without an ``__init__``, which would take as long as everything here
    limits.enforcer = enforcer
    limits.server_send = server_send
    limits.has_started = False
    limits._charge = charge
    limits.bucket = bucket
    limits._outcome = outcome
    limits._decisions = limits._answer = None  # ``send`` reads them faster here than from the class
    return limits, allowed


def limits_of_decisions(enforcer: Enforcer, server_send: Send | None, decisions: list[Decision]) -> RequestLimits:
    """The request limits of any decisions."""
    limits = RequestLimits()
    limits.enforcer, limits.server_send, limits._decisions = enforcer, server_send, decisions
    return limits


def _with_one_legacy_set(own: list[Header], headers: Sequence[Header]) -> list[Header]:
    """The headers of an answer and these; each ``X-RateLimit-*`` has one value, so those that the app sets stay.

    Those of the draft are lists, and several fields of one name make one list.
    """
    if LEGACY_NAMES.isdisjoint([name.lower() for name, _ in own]):
        return [*own, *headers]
    return [*own, *[each for each in headers if each[0] not in LEGACY_NAMES]]


async def _discard(message: Message) -> None:
    """The ``send`` for the rest of an answer that another one has replaced."""


def request_limits(scope: Scope) -> RequestLimits | None:
    """The request limits that the outermost limit of a request has started, if there are any."""
    return scope.get(SCOPE_KEY)


def _updated(old: Decision, new: Decision) -> Decision:
    """An older decision, with the states of its buckets from a newer one."""
    if old.take is None or new.take is None:
        return old
    newer = {charge.bucket: state for charge, state in zip(new.take.charges, new.states)}
    states = tuple([newer.get(charge.bucket, state) for charge, state in zip(old.take.charges, old.states)])
    return with_states(old, states, allowed=all(state.allowed for state in states))
