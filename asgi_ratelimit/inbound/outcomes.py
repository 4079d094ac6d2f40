"""Charging by outcome: what the answer says that a request has really cost."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from anyio import CancelScope
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..decision import Decision, checked_cost
from ..errors import StoreError
from ..stores import Store, settle
from .bills import Bill, Due

_STARTS = frozenset({"http.response.start", "websocket.accept", "websocket.http.response.start"})
_BODIES = frozenset({"http.response.body", "websocket.http.response.body"})
_SWITCHING = 101

logger = logging.getLogger("asgi_ratelimit")


class Settling:
    """An app around another one, which settles a request's decisions by its answer: once, as early as that is known.

    The request was charged before, so that a burst of guesses cannot pass between check and charge. What does not come
    to an answer stays charged.
    """

    def __init__(self, app: ASGIApp, store: Store, bill: Bill, decisions: Sequence[Decision]) -> None:
        self._app = app
        self._store = store
        self._dues = bill.dues
        self._decisions = decisions
        self._counts = any(due.line.counts for due in bill.dues)
        self._status: int | None = None
        self._headers = Headers()
        self._sent = 0
        self._is_settled = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def settling_send(message: Message) -> None:
            if self._notes(message):
                await self._settle()
            await send(message)

        try:
            await self._app(scope, receive, settling_send)
        except Exception as error:
            if self._status is None:
                self._status = error.status_code if isinstance(error, HTTPException) else 500
            raise
        finally:
            if self._status is not None:
                await self._settle()

    def _notes(self, message: Message) -> bool:
        """Whether with this message all is known that settling needs to know."""
        if message["type"] in _STARTS:
            self._status = message.get("status", _SWITCHING)
            self._headers = Headers(raw=list(message.get("headers", ())))
            return not self._counts
        if message["type"] in _BODIES:
            self._sent += len(message.get("body", b""))
            return not message.get("more_body", False)
        return False

    async def _settle(self) -> None:
        """Settle what is due, even if the request has been given up by now."""
        if self._is_settled:
            return
        self._is_settled = True
        with CancelScope(shield=True):
            for number, decision in enumerate(self._decisions):
                dues = [due for due in self._dues if due.take == number]
                if dues and decision.take is not None:
                    with suppress(StoreError):  # which the store has logged; the charge stands
                        await settle(self._store, decision, await self._actual(decision, dues))

    async def _actual(self, decision: Decision, dues: Sequence[Due]) -> list[float]:
        """What each charge came to."""
        actual = [charge.cost for charge in decision.take.charges] if decision.take else []
        for due in dues:
            said = await self._ask(due)
            if said is not None:
                actual = [said if place in due.places else units for place, units in enumerate(actual)]
        return actual

    async def _ask(self, due: Due) -> float | None:
        settle: Any = due.line.settle
        try:
            more = (self._sent,) if due.line.counts else ()
            said = settle(self._status, self._headers, *more)
            said = await said if inspect.isawaitable(said) else said
            return None if said is None else float(said) if said == 0 else checked_cost(said)
        except Exception as error:  # noqa: BLE001  # a function of the user's, which may raise whatever it likes
            due.line.fail_to_settle(error)
            return None
