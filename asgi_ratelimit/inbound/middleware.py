"""The ASGI middleware: decide, then answer or delegate."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from typing import NoReturn

from starlette.exceptions import HTTPException
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .._keys import DEFAULT_NAME
from ..decision import Bucket, Charge, Take, checked_cost
from ..headers import render
from ..limiter import as_key, as_store, checked_name
from ..quota_text import QuotaLike, as_quotas
from ..stores import Store
from .keys import KeyFunction, client_ip
from .responses import HeaderSender, refuse
from .rules import Line, Rule, Rulebook

_CLIENT_IP = client_ip()


class RateLimitMiddleware:
    """Limits the HTTP requests and WebSocket handshakes of an ASGI app.

    ``quota`` applies to every request, under ``key``, at ``cost`` units each; ``rules`` add to it, replace it or
    exempt from it by path and method; ``store`` is a store or its URL, by default this process's memory. A request
    takes from all its quotas or from none. A refused one is answered with 429 and never reaches the app; every
    other answer carries ``RateLimit`` and ``RateLimit-Policy``. The store is closed at lifespan shutdown.

    Raises ``QuotaError``, ``ConfigurationError`` or ``ValueError`` for arguments that cannot be.
    """

    def __init__(
        self,
        app: ASGIApp,
        quota: QuotaLike | None = None,
        *,
        key: KeyFunction = _CLIENT_IP,
        rules: Iterable[Rule] = (),
        store: Store | str | None = None,
        name: str = DEFAULT_NAME,
        cost: float = 1,
    ) -> None:
        self.app = app
        own = None if quota is None else Line(checked_name(name), as_quotas(quota), key, checked_cost(cost))
        self._rulebook = Rulebook(own, rules, name=checked_name(name), key=key, cost=checked_cost(cost))
        self._store = as_store(store)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, self._closing(send) if scope["type"] == "lifespan" else send)
            return
        take = self._quick_take(scope) or await self._take(scope)
        if take is None:
            await self.app(scope, receive, send)
            return
        (decision,) = await self._store.take((take,))
        if not decision.allowed:
            await refuse(decision, scope, send)
            return
        sender = HeaderSender(send, render(decision))
        try:
            await self.app(scope, receive, sender)
        except Exception as error:
            if not sender.started and _is_unexpected(error) and self._answers_errors(scope):
                await _server_error(error, scope, receive, sender)
            raise

    def _quick_take(self, scope: Scope) -> Take | None:
        """The bill of a request that one line alone applies to, and that has a key without asking anybody."""
        lines = self._rulebook.lines(scope)
        if len(lines) == 1 and lines[0].scope_key is not None:
            key = lines[0].scope_key(scope)
            return None if key is None else lines[0].take(key)
        return None

    async def _take(self, scope: Scope) -> Take | None:
        """The bill of a request, or ``None`` where no rule applies, or none has a key."""
        charges = await self._charges(self._rulebook.lines(scope), scope)
        return Take(charges) if charges else None

    async def _charges(self, lines: Sequence[Line], scope: Scope) -> tuple[Charge, ...]:
        """One charge for each bucket; a key function is called once for each request."""
        charges: dict[Bucket, Charge] = {}
        keys: dict[int, str | None] = {}
        for line in lines:
            function = id(line.key)
            key = keys[function] = keys[function] if function in keys else await _key(line, scope)
            if key is not None:
                for charge in line.charges(key):
                    charges.setdefault(charge.bucket, charge)
        return tuple(charges.values())

    def _closing(self, send: Send) -> Send:
        async def closing_send(message: Message) -> None:
            if message["type"] in ("lifespan.shutdown.complete", "lifespan.shutdown.failed"):
                await self._store.aclose()
            await send(message)

        return closing_send

    def _answers_errors(self, scope: Scope) -> bool:
        """Whether Starlette would answer an error of the app outside of us, past our headers, and by default.

        Its handlers for 500 and ``Exception`` are left to run there: they may have effects, and must not run twice.
        So is everything where other middleware outside of us, which may catch the error, is not the framework's own.
        """
        layer = getattr(scope.get("app"), "middleware_stack", None)
        if not isinstance(layer, ServerErrorMiddleware) or layer.handler is not None or scope["type"] != "http":
            return False
        while _lets_errors_through(layer):
            layer = getattr(layer, "app", None)
        return layer is self


def _is_unexpected(error: Exception) -> bool:
    """Whether it is an error of the app, and not one by which the framework steers itself."""
    return not isinstance(error, HTTPException) and not _is_of_framework(error)


def _is_of_framework(thing: object) -> bool:
    return type(thing).__module__.partition(".")[0] in ("starlette", "fastapi")


def _lets_errors_through(layer: object) -> bool:
    return _is_of_framework(layer) and not isinstance(layer, (BaseHTTPMiddleware, ExceptionMiddleware))


async def _key(line: Line, scope: Scope) -> str | None:
    if line.scope_key is not None:
        return line.scope_key(scope)
    key = line.key(HTTPConnection(scope))
    if inspect.isawaitable(key):
        key = await key
    return None if key is None else as_key(key)


async def _server_error(error: Exception, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer as Starlette would, and raise the error again."""

    async def failed(scope: Scope, receive: Receive, send: Send) -> NoReturn:
        raise error

    await ServerErrorMiddleware(failed, debug=scope["app"].debug)(scope, receive, send)
