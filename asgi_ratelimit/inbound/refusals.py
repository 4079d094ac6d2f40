"""Requests that are refused: by a middleware before the app runs, or by what the app raises."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketState

from ..decision import Decision
from ..errors import RateLimitError
from ..headers import retry_after
from .answers.responses import Connection, LimitUnavailable, is_outage
from .penalties.blocks import is_blocked
from .request_limits import Enforcer, RequestLimits


def refuse(enforcer: Enforcer, limits: RequestLimits, connection: Connection) -> Awaitable[None]:
    """Answer a request that the last decision refused, and give back what earlier ones had charged for it."""
    refused = limits.refused
    if refused is not None and enforcer.refusal.is_usual and connection[0]["type"] == "http":
        return enforcer.refusal.answer_usual(*refused, connection[2])
    if len(limits.decisions) > 1:
        return _refund_and_refuse(enforcer, limits, connection)
    return _answer(enforcer, limits, limits.decisions[0], connection)


async def _refund_and_refuse(enforcer: Enforcer, limits: RequestLimits, connection: Connection) -> None:
    decision = limits.decisions[-1]
    await limits.refund_all()
    await _answer(enforcer, limits, decision, connection)


def _answer(enforcer: Enforcer, limits: RequestLimits, decision: Decision, connection: Connection) -> Awaitable[None]:
    by_block = is_blocked(decision)
    if by_block or is_outage(decision):
        limits.leave_out(decision)
    return enforcer.refusal.answer(limits.reported, decision, connection, by_block)


class RateLimited(RateLimitError, HTTPException):
    """Raised where a request is refused inside the app: by ``Depends(RateLimit(...))``, or by ``limits().charge``.

    It needs no handler: it is answered like any refused request, unless the app has a handler for it, or for 429.
    ``decision`` is the refusal; ``None`` means that a function failed whose rule then lets nobody pass.
    """

    def __init__(self, limits: RequestLimits, decision: Decision | None) -> None:
        headers = retry_after(decision) if decision is not None else [(b"retry-after", b"1")]
        status = 503 if decision is None or is_outage(decision) else 429
        detail = "rate limit unavailable" if status == 503 else "rate limit exceeded"
        super().__init__(status, detail, {name.decode(): value.decode() for name, value in headers})
        self.decision = decision
        self._limits = limits

    def with_handler(self, scope: Scope) -> RateLimited:
        """This error, after the framework was given a handler for it, unless the app has one."""
        by_class: dict[Any, Any] = (scope.get("starlette.exception_handlers") or ({}, {}))[0]
        by_class.setdefault(RateLimited, _handle)
        return self

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request, as an ASGI app."""
        limits = self._limits
        if limits.server_send is None:
            limits = limits.sending_to(send)
            send = limits.send
        if self.decision is None:
            await LimitUnavailable().answer(scope, send)
        else:
            await _answer(limits.enforcer, limits, self.decision, (scope, receive, send))


async def _handle(connection: Request | WebSocket, error: RateLimited) -> RateLimited | None:
    """The handler of such an error, for Starlette and FastAPI."""
    if isinstance(connection, WebSocket) and connection.application_state is WebSocketState.CONNECTED:
        await connection.close(1008, "rate limit exceeded")
        return None
    return error
