"""The ASGI middleware: decide, then answer or delegate."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from typing import NoReturn

from starlette.exceptions import HTTPException
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .._keys import DEFAULT_NAME
from ..decision import Decision, OnError
from ..headers import dialect
from ..hooks import Hook, Hooks
from ..limiter import as_store
from ..quota_text import QuotaLike
from ..stores import MemoryStore, Store
from .exchange import SCOPE_KEY, Exchange, exchange_of
from .gate import Gate
from .keys import KeyFunction, client_ip
from .lines import Bill, Denied
from .lists import Barred, Lists, Test
from .penalties import Penalty
from .refused import RateLimited, refuse
from .responses import Connection, OnLimited, Refusal, answer_barred, answer_unavailable
from .rulebook import Defaults, Rulebook
from .rules import CostFunction, QuotaFunction, Rule
from .settling import Settling
from .throttled import Throttled

_CLIENT_IP = client_ip()


class RateLimitMiddleware:
    """Limits the HTTP requests and WebSocket handshakes of an ASGI app.

    ``quota`` applies to every request, under ``key``, at ``cost`` units each; all three may be functions of the
    connection. ``rules`` add to it, replace it or exempt from it by path and method; ``store`` is a store or its URL,
    by default this process's memory. A request takes from all its quotas or from none, in one call to the store.

    A refused request is answered with 429 and never reaches the app; ``on_limited(connection, decision)``, sync or
    async, may return another answer. ``headers`` says in which dialect every answer tells what is left:
    ``"draft-10"`` (``RateLimit`` and ``RateLimit-Policy``), ``"legacy"`` (``X-RateLimit-*``), ``"both"`` or ``None``.
    ``on_error`` says what happens without the store or where a function fails (see ``Rule``); ``hooks`` are told of
    each decision; ``penalty`` blocks a key that ``quota`` refuses again and again. ``allow`` and ``deny`` are functions
    of the connection that say who is not limited here at all, and who never gets in. The store is closed at lifespan
    shutdown.

    Raises ``QuotaError``, ``ConfigurationError`` or ``ValueError`` for arguments that cannot be.
    """

    def __init__(
        self,
        app: ASGIApp,
        quota: QuotaLike | QuotaFunction | None = None,
        *,
        key: KeyFunction = _CLIENT_IP,
        rules: Iterable[Rule] = (),
        store: Store | str | None = None,
        name: str = DEFAULT_NAME,
        cost: float | CostFunction = 1,
        headers: str | None = "draft-10",
        on_limited: OnLimited | None = None,
        on_error: OnError | None = None,
        hooks: Iterable[Hook] = (),
        penalty: Penalty | None = None,
        allow: Test | None = None,
        deny: Test | None = None,
    ) -> None:
        self.app = app
        self._rulebook = Rulebook(quota, rules, Defaults(name, key, cost, on_error), penalty)
        self._terms = self._rulebook.terms
        self._lists = None if allow is deny is None else Lists(allow, deny, on_error)
        self._store = as_store(store)
        self._take_now = self._store.take_now if type(self._store) is MemoryStore else None
        self._gate = Gate(name, self._store, key, dialect(headers), Refusal(on_limited), Hooks(hooks))
        self._is_observed = bool(self._gate.hooks)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, self._closing(send) if scope["type"] == "lifespan" else send)
            return
        try:
            terms = None if self._lists is not None and await self._lists.allow(scope) else self._terms(scope)
            bill = None if terms is None else terms.bill(scope) if terms.is_plain else await terms.ask(scope)
        except Barred:
            await answer_barred(scope, send)
            return
        except Denied:
            await answer_unavailable(scope, send)
            return
        app, decisions = self.app, []
        if bill is not None:
            if bill.takes:
                decisions = self._take_now(bill.takes) if self._take_now else await self._store.take(bill.takes)
            if self._is_observed or not bill.is_usual:
                app, decisions = await self._beyond_the_usual(bill, decisions)
        outer = exchange_of(scope)
        if outer is not None:
            outer.add(decisions, self._store)
            await self._go_on(app, decisions, outer, (scope, receive, send))
            return
        exchange = scope[SCOPE_KEY] = Exchange(self._gate, decisions, send)
        try:
            await self._go_on(app, decisions, exchange, (scope, receive, exchange))
        except Exception as error:
            if exchange.started or not await self._answers(error, exchange, scope, receive):
                raise
        finally:
            del scope[SCOPE_KEY]

    def _go_on(
        self, app: ASGIApp, decisions: list[Decision], exchange: Exchange, connection: Connection
    ) -> Awaitable[None]:
        """Delegate to the app, unless one of our decisions refused."""
        if not decisions or decisions[-1].allowed:
            return app(*connection)
        return refuse(self._gate, exchange, connection)

    async def _beyond_the_usual(self, bill: Bill, decisions: list[Decision]) -> tuple[ASGIApp, list[Decision]]:
        """The app that is to run, and the decisions that are enforced, where there is more to do than to enforce."""
        enforced, app = await self._gate.noted(bill, decisions), self.app
        if bill.messages is not None:
            app = Throttled(app, self._store, bill.messages)
        if bill.dues:
            app = Settling(app, self._store, bill, [*enforced, *decisions[bill.is_enforced :]])
        return app, enforced

    async def _answers(self, error: Exception, exchange: Exchange, scope: Scope, receive: Receive) -> bool:
        """Whether an error of the app that nobody has answered is answered here, and is none any more."""
        if isinstance(error, RateLimited):
            await error(scope, receive, exchange)
            return True
        if _is_unexpected(error) and self._answers_errors(scope):
            await _server_error(error, scope, receive, exchange)
        return False

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


async def _server_error(error: Exception, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer as Starlette would, and raise the error again."""

    async def failed(scope: Scope, receive: Receive, send: Send) -> NoReturn:
        raise error

    await ServerErrorMiddleware(failed, debug=scope["app"].debug)(scope, receive, send)
