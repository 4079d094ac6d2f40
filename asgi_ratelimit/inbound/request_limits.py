"""Request limits: the decisions on one request so far, and what its answer reports about them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from starlette.types import Message, Scope, Send

from ..algorithms import State
from ..decision import Decision, with_charges
from ..headers import LEGACY_NAMES, Header, delay
from ..stores import Store
from .enforcer import Enforcer

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

    __slots__ = (
        "_answer",
        "_stores",
        "decisions",
        "enforcer",
        "has_started",
        "is_exempt",
        "reported",
        "server_send",
        "waited",
    )

    def __init__(self, enforcer: Enforcer, server_send: Send | None, decisions: list[Decision]) -> None:
        self.enforcer = enforcer
        self.server_send = server_send
        self.decisions = decisions
        """All decisions on this request, in order."""
        self.reported = decisions
        """Those that headers report, with the newest state of each bucket; the same list until one differs."""
        self.has_started = False
        self.is_exempt = False
        """Whether the client is on the list of clients that are never limited, not even by dependencies."""
        self.waited = 0.0
        """How many seconds the request has waited for slots."""
        self._answer: Callable[[Send], Awaitable[None]] | None = None
        self._stores: list[Store] | None = None

    def send(self, message: Message) -> Awaitable[None]:
        """Send a message of the answer, with headers if it starts the answer; all other messages pass unchanged."""
        if not self.has_started and message["type"] in STARTS and message.get("status", FINAL) >= FINAL:
            self.has_started = True
            if self._answer is not None:
                return self._answer_instead(self._answer)
            dialect = self.enforcer.dialect
            if dialect is not None and (self.reported or self.waited):
                headers = dialect(self.reported) if self.reported else ()
                if self.waited:
                    headers = [*headers, delay(self.waited)]
                own = [*message.get("headers", ())]
                if len(headers) != 2 or headers[0][0] in LEGACY_NAMES:  # not those of the draft alone
                    headers = _without_a_second_legacy_set(own, headers)
                message = {**message, "headers": [*own, *headers]}
        return self.server_send(message)  # type: ignore[misc]  # nobody calls this without one

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
    def stores(self) -> list[Store]:
        """The store that made each of the decisions."""
        if self._stores is None:
            self._stores = [self.enforcer.store] * len(self.decisions)
        return self._stores

    def sending_to(self, server_send: Send) -> RequestLimits:
        """The same request limits, for an answer that is sent through ``server_send``."""
        copy = RequestLimits(self.enforcer, server_send, self.decisions)
        copy.is_exempt = self.is_exempt
        copy.has_started, copy._stores, copy.reported = self.has_started, self.stores, self.reported
        copy.waited = self.waited
        return copy

    def add(self, decisions: Sequence[Decision], store: Store) -> None:
        """Add the decisions of an inner limit."""
        self.stores.extend([store] * len(decisions))
        if self.reported is not self.decisions:
            self.reported = [*self.reported, *decisions]
        self.decisions.extend(decisions)

    def add_update(self, decision: Decision, store: Store) -> None:
        """Add a decision on buckets that were charged before: headers report their new states."""
        newer = {charge.bucket: state for charge, state in zip(decision.charges, decision.stored)}
        reported = [_updated(each, newer) for each in self.reported]
        if not decision.allowed:
            reported = [_refused(each, decision) for each in reported]
        self.add([decision], store)
        self.reported = reported

    def leave_out(self, decision: Decision) -> None:
        """Keep a decision out of the headers, because no quota made it."""
        self.reported = [each for each in self.reported if each is not decision]

    async def refund_all(self) -> None:
        """Give back everything that this request was charged; what a store cannot take back now stays charged.

        Headers report these buckets as they are afterwards.
        """
        pairs = zip(self.decisions, self.stores)
        taken = [(store, decision) for decision, store in pairs if decision.allowed and decision.id]
        states = await self.enforcer.successive_takes.give_back(taken)
        if states:
            self.reported = [_updated(each, states) if each.allowed else each for each in self.reported]


def _without_a_second_legacy_set(own: Iterable[Header], headers: Sequence[Header]) -> Sequence[Header]:
    """The headers to add to those of an answer: each ``X-RateLimit-*`` has one value, so those that the app sets stay.

    Those of the draft are lists, and several fields of one name make one list.
    """
    if LEGACY_NAMES.isdisjoint([name.lower() for name, _ in own]):
        return headers
    return [each for each in headers if each[0] not in LEGACY_NAMES]


async def _discard(message: Message) -> None:
    """The ``send`` for the rest of an answer that another one has replaced."""


def request_limits(scope: Scope) -> RequestLimits | None:
    """The request limits that the outermost limit of a request has started, if there are any."""
    return scope.get(SCOPE_KEY)


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
