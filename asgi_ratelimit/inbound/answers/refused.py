"""A request that is refused: by a middleware before the app runs, or by what the app raises."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketState

from ...decision import Decision
from ...errors import RateLimitError
from ...headers import retry_after
from ..gate import Gate
from ..penalties.blocks import is_blocked
from ..request_limits import Exchange
from .responses import Connection, answer_unavailable, is_outage


def answer(gate: Gate, exchange: Exchange, decision: Decision, connection: Connection) -> Awaitable[None]:
    """Answer a request that ``decision`` refused."""
    by_block = is_blocked(decision)
    if by_block or is_outage(decision):
        exchange.hide(decision)
    return gate.refusal.answer(exchange.told, decision, connection, by_block)


def refuse(gate: Gate, exchange: Exchange, connection: Connection) -> Awaitable[None]:
    """Answer a request that the last decision refused, and give back what others had charged for it."""
    decisions = exchange.decisions
    if len(decisions) > 1:
        return _give_back_and_refuse(gate, exchange, connection)
    return answer(gate, exchange, decisions[0], connection)


async def _give_back_and_refuse(gate: Gate, exchange: Exchange, connection: Connection) -> None:
    decision = exchange.decisions[-1]
    await exchange.give_back()
    await answer(gate, exchange, decision, connection)


class RateLimited(RateLimitError, HTTPException):
    """Raised where a request is refused inside the app: by ``Depends(RateLimit(...))``, or by ``limits().charge``.

    It needs no handler: it is answered like any refused request, unless the app has a handler for it, or for 429.
    ``decision`` says what refused; ``None`` means that a function failed whose rule then lets nobody pass.
    """

    def __init__(self, exchange: Exchange, decision: Decision | None) -> None:
        headers = retry_after(decision) if decision else [(b"retry-after", b"1")]
        status = 503 if decision is None or is_outage(decision) else 429
        detail = "rate limit unavailable" if status == 503 else "rate limit exceeded"
        super().__init__(status, detail, {name.decode(): value.decode() for name, value in headers})
        self.decision = decision
        self._exchange = exchange

    def let_answer(self, scope: Scope) -> RateLimited:
        """This error, after it was made sure that the framework finds how to answer it."""
        by_class: dict[Any, Any] = (scope.get("starlette.exception_handlers") or ({}, {}))[0]
        by_class.setdefault(RateLimited, _handle)
        return self

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request, as an ASGI app."""
        exchange = self._exchange
        if not exchange.is_sending:
            exchange = exchange.through(send)
            send = exchange.send
        if self.decision is None:
            await answer_unavailable(scope, send)
        else:
            await answer(exchange.gate, exchange, self.decision, (scope, receive, send))


async def _handle(connection: Request | WebSocket, error: RateLimited) -> RateLimited | None:
    """The handler of such an error, for Starlette and FastAPI."""
    if isinstance(connection, WebSocket) and connection.application_state is WebSocketState.CONNECTED:
        await connection.close(1008, "rate limit exceeded")
        return None
    return error
