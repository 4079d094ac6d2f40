"""Answers to refused requests: refused by a middleware before the app runs, or by an exception in the app."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Mapping
from typing import Any

from anyio import sleep_forever
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.types import Message, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketState

from ..decision import Decision, is_outage
from ..errors import RateLimitError
from ..headers import retry_after
from .enforcer import Enforcer, Handler
from .penalties import is_blocked
from .request_limits import RequestLimits
from .responses.refusal_answers import RETRY_SOON, AppArguments, LimitUnavailable, OnLimited, refusing_name


def refuse(enforcer: Enforcer, limits: RequestLimits, connection: AppArguments) -> Awaitable[None]:
    """Answer a request that the last decision refused, and give back what earlier decisions had charged for it."""
    if len(limits.decisions) > 1:
        return _refund_and_refuse(enforcer, limits, connection)
    return _answer(enforcer, limits, limits.decisions[0], connection)


async def _refund_and_refuse(enforcer: Enforcer, limits: RequestLimits, connection: AppArguments) -> None:
    decision = limits.decisions[-1]
    await limits.refund_all()
    await _answer(enforcer, limits, decision, connection)


def _answer(
    enforcer: Enforcer,
    limits: RequestLimits,
    decision: Decision,
    connection: AppArguments,
    on_limited: OnLimited | None = None,
) -> Awaitable[None]:
    by_block = is_blocked(decision)
    if by_block or is_outage(decision):
        limits.leave_out(decision)
    on_limited = on_limited or own_answer_of(decision, enforcer.on_limited)
    if on_limited is None and enforcer.refusal.on_limited is None and enforcer.handler is not None:
        on_limited = _handled_by(enforcer.handler, limits, connection)
    return enforcer.refusal.answer(limits.reported, decision, connection, by_block, on_limited)


def own_answer_of(decision: Decision, by_name: Mapping[str, OnLimited]) -> OnLimited | None:
    """The ``on_limited`` of the rule that refused with the longest wait, if it has one."""
    return by_name.get(refusing_name(decision) or "") if by_name else None


def find_handler(enforcer: Enforcer, scope: Scope, app: Any) -> None:
    """Let an app's own handler for ``RateLimited`` also answer the requests that the middleware refuses."""
    handler = _handler_of(scope.get("app"))
    for _ in range(_MAX_DEPTH):
        handler = handler or _handler_of(app)
        app = getattr(app, "app", None)
    if handler is not None:
        enforcer.handler = handler


_MAX_DEPTH = 100
"""How many nested middlewares are followed before they are taken for a cycle."""


def _handler_of(app: Any) -> Handler | None:
    handlers = getattr(app, "exception_handlers", None)
    return handlers.get(RateLimited) if isinstance(handlers, dict) else None


def _handled_by(handler: Handler, limits: RequestLimits, connection: AppArguments) -> OnLimited | None:
    """An exception handler as an ``on_limited``; ``None`` for handshakes, whose handlers only the framework calls."""
    scope, receive, _ = connection
    if scope["type"] != "http":
        return None

    async def answer(_: HTTPConnection, decision: Decision) -> Any:
        arguments = Request(scope, receive), RateLimited(limits, decision)
        if inspect.iscoroutinefunction(handler):
            return await handler(*arguments)
        return await run_in_threadpool(handler, *arguments)

    return answer


class RateLimited(RateLimitError, HTTPException):
    """Raised when a request is refused inside the app: by ``Depends(RateLimit(...))``, or by ``limits().charge``.

    It needs no handler: the request is answered like any refused request, unless the app has a handler for this class,
    or for 429. A handler for this class also answers the requests that a middleware refuses, unless that has an
    ``on_limited``. ``decision`` is the refusal; ``None`` means that a function failed whose rule then lets nobody pass.
    """

    def __init__(self, limits: RequestLimits, decision: Decision | None, on_limited: OnLimited | None = None) -> None:
        headers = retry_after(decision) if decision is not None else [RETRY_SOON]
        status = 503 if decision is None or is_outage(decision) else 429
        detail = "rate limit unavailable" if status == 503 else "rate limit exceeded"
        super().__init__(status, detail, {name.decode(): value.decode() for name, value in headers})
        self.decision = decision
        self._limits = limits
        self._on_limited = on_limited

    def with_handler(self, scope: Scope) -> RateLimited:
        """This error, after giving the framework a handler for it, unless the app has one."""
        by_class: dict[Any, Any] = (scope.get("starlette.exception_handlers") or ({}, {}))[0]
        by_class.setdefault(RateLimited, _handle)
        return self

    def answers_in_any_case(self, scope: Scope) -> RateLimited:
        """This error, as the answer whatever a framework does with it, unless the app has a handler for it."""
        self.with_handler(scope)
        handlers: tuple[dict[Any, Any], dict[Any, Any]] = scope.get("starlette.exception_handlers") or ({}, {})
        by_class, by_status = handlers
        if self.status_code not in by_status and by_class.get(RateLimited) in (None, _handle):
            self._limits.answer_with(lambda send: self(scope, _nothing_to_receive, send))
        return self

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request, as an ASGI app."""
        limits = self._limits
        limits.answer_with(None)
        if limits.server_send is None:
            limits = limits.sending_to(send)
            send = limits.send
        if self.decision is None:
            await LimitUnavailable().answer(scope, send)
        else:
            await _answer(limits.enforcer, limits, self.decision, (scope, receive, send), self._on_limited)


async def _handle(connection: Request | WebSocket, error: RateLimited) -> RateLimited | None:
    """The handler of such an error, for Starlette and FastAPI."""
    if isinstance(connection, WebSocket) and connection.application_state is WebSocketState.CONNECTED:
        await connection.close(1008, "rate limit exceeded")
        return None
    return error


async def _nothing_to_receive() -> Message:
    """The ``receive`` of an answer, instead of the app's, which may have read everything."""
    await sleep_forever()
    raise AssertionError
