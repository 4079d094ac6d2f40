"""One request and its answer: what was decided, and how the answer says so."""

from __future__ import annotations

from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import replace
from typing import ClassVar, Final

from starlette.types import Message, Scope, Send

from ..decision import Decision
from ..errors import StoreError
from ..stores import Store, settle
from .gate import Gate

SCOPE_KEY: Final = "asgi_ratelimit"
"""Where the exchange of a request is found in its scope."""

_STARTS = frozenset({"http.response.start", "websocket.accept", "websocket.http.response.start"})


class Exchange:
    """One request and its answer: ``send`` adds headers to the start of that, and passes all else through as it is.

    The headers tell what was decided until then: limits further in add their decisions to those of the outermost.
    Without a ``send`` to pass on to, which is how dependencies begin one, it only knows what was decided.
    """

    is_free: ClassVar[bool] = False
    """Whether the client is on the list of those who are never limited."""

    __slots__ = ("_send", "_stores", "_told", "decisions", "gate", "started")

    def __init__(self, gate: Gate, decisions: list[Decision], send: Send | None) -> None:
        self.gate = gate
        self.decisions = decisions
        self.started = False
        self._send = send
        self._stores: list[Store] | None = None
        self._told: list[Decision] | None = None

    def send(self, message: Message) -> Awaitable[None]:
        """Pass a message of the answer on."""
        if not self.started and message["type"] in _STARTS:
            self.started = True
            told = self.decisions if self._told is None else self._told
            dialect = self.gate.dialect
            if told and dialect is not None:
                message = message.copy()  # type: ignore[attr-defined]  # a dict, says ASGI
                message["headers"] = [*message.get("headers", ()), *dialect(told)]
        return self._send(message)  # type: ignore[misc]  # without a send nobody calls

    @property
    def is_sending(self) -> bool:
        """Whether the answer passes through here, so that its headers are taken care of."""
        return self._send is not None

    @property
    def told(self) -> list[Decision]:
        """The decisions as headers tell them: of each bucket the newest state."""
        return self.decisions if self._told is None else self._told

    @property
    def stores(self) -> list[Store]:
        """Where each of the decisions was made."""
        if self._stores is None:
            self._stores = [self.gate.store] * len(self.decisions)
        return self._stores

    def through(self, send: Send) -> Exchange:
        """The same, for an answer that passes through here."""
        exchange = Exchange(self.gate, self.decisions, send)
        exchange._stores, exchange._told = self.stores, self._told
        return exchange

    def add(self, decisions: list[Decision], store: Store) -> None:
        """Decisions of a limit further in."""
        self.stores.extend([store] * len(decisions))
        self._told = None if self._told is None else [*self._told, *decisions]
        self.decisions.extend(decisions)

    def add_more(self, decision: Decision, store: Store) -> None:
        """A further charge to buckets that were charged before: what headers tell of them changes."""
        told = [_updated(each, decision) for each in self.told]
        self.add([decision], store)
        self._told = told

    def hide(self, decision: Decision) -> None:
        """Let headers tell nothing of a decision, because no quota has made it."""
        self._told = [each for each in self.told if each is not decision]

    async def give_back(self) -> None:
        """Give back all that this request was charged; what the store cannot take back now stays charged."""
        for decision, store in zip(self.decisions, self.stores):
            if decision.allowed:
                with suppress(StoreError):
                    await settle(store, decision, [0.0] * len(decision.states))


class FreeExchange(Exchange):
    """That of a client who is never limited, not by dependencies either."""

    is_free = True

    __slots__ = ()


def exchange_of(scope: Scope) -> Exchange | None:
    """The exchange that the outermost limit of a request has begun, if there is one."""
    return scope.get(SCOPE_KEY)


def _updated(old: Decision, new: Decision) -> Decision:
    """An older decision with the newer states of its buckets."""
    if old.take is None or new.take is None:
        return old
    newer = {charge.bucket: state for charge, state in zip(new.take.charges, new.states)}
    states = tuple([newer.get(charge.bucket, state) for charge, state in zip(old.take.charges, old.states)])
    binding = min(states, key=lambda state: (state.allowed, -state.retry_after, state.remaining))
    return replace(
        old,
        allowed=binding.allowed,
        retry_after=binding.retry_after,
        quota=binding.quota,
        remaining=binding.remaining,
        reset_after=binding.reset_after,
        states=states,
    )
