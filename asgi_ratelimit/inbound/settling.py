"""Charging by outcome: each request is settled to its actual cost, which its answer determines."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..decision import Decision, checked_actual
from ..errors import StoreError
from ..stores import Store, settle
from .delays import see_through
from .functions import SETTLE_USE
from .plan import Plan
from .refusals import FINAL, STARTS
from .rules import CompiledRule

_BODIES = frozenset({"http.response.body", "websocket.http.response.body"})
_FILES = frozenset({"http.response.pathsend", "http.response.zerocopysend"})
_SWITCHING = 101
_REJECTED = 403
"""The status with which servers answer a handshake that is closed before it was accepted."""


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
