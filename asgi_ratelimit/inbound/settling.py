"""What a request was charged is settled to its actual cost, which its answer determines, or given back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from anyio import CancelScope
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..algorithms.take import State
from ..decision import Decision, Take, checked_actual
from ..errors import StoreError
from ..keys.base import called
from ..leases import end_leases
from ..stores import Settlement, Store, settle_all, undoing
from ..stores.base import settlements_of
from ..waiting.drivers import GiveBack, SendTake
from .plan import SCOPE_KEY, Plan
from .refusals import BODIES, FILES, FINAL, STARTS, ends_answer
from .rules import CompiledRule
from .user_functions import SETTLE_USE

Taken: TypeAlias = tuple[Store, Decision]  # A decision, behind the store that made it


# Charges of requests that end early


async def see_through(stores: Sequence[Store], call: Callable[[], Coroutine[Any, Any, Any]]) -> None:
    """Complete a call to some stores, however often the request is cancelled meanwhile.

    A task of its own makes the call, unless all stores are in this process.
    """
    store = next((store for store in stores if not store.in_process), stores[0])
    with CancelScope(shield=True):
        await GiveBack(store, call).in_task()


async def take_one(store: Store, take: Take) -> Decision:
    """The decision on a take; if the request is cancelled meanwhile, what it has taken is given back."""
    sent = SendTake(store, take)
    try:
        return await sent.in_task()
    except BaseException:
        await see_through([store], sent.undo)
        raise


async def give_back(taken: Sequence[Taken]) -> dict[str, State]:
    """Give back what was taken for a request that is not admitted; the states of the buckets afterwards.

    What a store cannot take back now stays charged. Nothing is left to settle of these decisions.
    """
    states: dict[str, State] = {}

    async def undo() -> None:
        for store, decision in taken:
            settlements = undoing(decision)
            end_leases(store, decision)
            decision.id = 0
            with suppress(StoreError):  # which the store has logged
                settled = await settle_all(store, settlements)
                states.update({each.charge.bucket: now.state for each, now in zip(settlements, settled)})

    if taken:
        await see_through([store for store, _ in taken], undo)
    return states


# Charging by outcome


@dataclass(slots=True, eq=False)
class Settling:
    """An app around another one, which settles a request's decisions by its answer: once, as early as possible.

    The request was charged before, so that a burst of guesses cannot pass between check and charge. A request without
    an answer stays charged, and so does that of a client that goes before its answer begins.
    """

    app: ASGIApp
    store: Store
    plan: Plan
    decisions: Sequence[Decision]
    _status: int | None = field(init=False, default=None)
    _raw_headers: Iterable[tuple[bytes, bytes]] = field(init=False, default=())
    _sent: int = field(init=False, default=0)
    _is_head: bool = field(init=False, default=False)
    _is_settled: bool = field(init=False, default=False)
    _send: Send = field(init=False)
    _limits: Any = field(init=False)  # of the request

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._is_head, self._send, self._limits = scope.get("method") == "HEAD", send, scope[SCOPE_KEY]

        async def settling_receive() -> Message:
            message = await receive()
            if message["type"] in ("http.disconnect", "websocket.disconnect") and self._status is None:
                self._is_settled = True
            return message

        try:
            await self.app(scope, settling_receive, self._settling_send)
        except Exception as error:
            if self._status is None:
                own = error.status_code if isinstance(error, HTTPException) else 500
                self._status = own if self._limits.pending is None else self._limits.pending[0]
            raise
        finally:
            if self._status is not None and not self._is_settled:
                await self._settle()

    def _settling_send(self, message: Message) -> Awaitable[None]:
        if message["type"] in STARTS and type(message.get("headers", [])) is not list:
            message = {**message, "headers": [*message["headers"]]}  # it is read here and by the server
        is_due = not self._is_settled and self._note(message)
        return self._settle_and_send(message) if is_due else self._send(message)

    async def _settle_and_send(self, message: Message) -> None:
        await self._settle()
        await self._send(message)

    def _note(self, message: Message) -> bool:
        """Note what settle functions take; return whether this message completes it."""
        kind = message["type"]
        if kind in STARTS and message.get("status", FINAL) >= FINAL:
            self._status = message.get("status", 101)  # a handshake that is accepted has none
            self._raw_headers = message.get("headers", ())
            if self._limits.pending is not None:  # a refusal, which is sent instead
                self._status, self._raw_headers = self._limits.pending[0], ()
            return not self.plan.settles_by_bytes
        if kind == "websocket.close" and self._status is None:
            self._status = 403  # with which servers answer a handshake that is closed before it was accepted
            return True
        if kind in FILES:  # the server reads the file by itself
            length = Headers(raw=list(self._raw_headers)).get("content-length", "")
            self._sent += message.get("count") or (int(length) if length.isascii() and length.isdigit() else 0)
        if kind in BODIES:
            self._sent += len(message.get("body", b""))
        return kind != "websocket.close" and ends_answer(message)

    def _settle(self) -> Awaitable[None]:
        """Settle every decision, even if the request has been cancelled: what has gone to the store is done there."""
        self._is_settled = True
        at_once = self.plan.settles_at_once
        return self._settle_decisions() if at_once else see_through([self.store], self._settle_decisions)

    async def _settle_decisions(self) -> None:
        """Settle each charge by the ``settle`` of the rule with its name, which is called once."""
        settling, actual = self.plan.settling, dict[str | None, float | None]()
        settlements: list[Settlement] = []
        for decision in self.decisions:
            for charge in decision.take.charges:
                if charge.name in settling and charge.name not in actual:
                    actual[charge.name] = await self._actual_cost(settling[charge.name])
            settlements += settlements_of(decision, [actual.get(charge.name) for charge in decision.take.charges])
        with suppress(StoreError):  # which the store has logged; the charges stand
            await settle_all(self.store, settlements)

    async def _actual_cost(self, rule: CompiledRule) -> float | None:
        """The result of the rule's settle function; ``None``, also if it fails, leaves the cost as charged."""
        sent = (self._sent * (not self._is_head),) if rule.settles_by_bytes else ()
        try:
            cost = await called(rule.settle, self._status, Headers(raw=list(self._raw_headers)), *sent)
            return None if cost is None else checked_actual(cost, SETTLE_USE)
        except Exception as error:  # noqa: BLE001  # a function of the user's, which may raise whatever it likes
            rule.failures.report(rule.name, "settle", "requests stay charged as they were", error)
            return None
