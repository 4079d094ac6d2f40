"""The ASGI middleware: decide, then answer or delegate."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from functools import partial

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..buckets import DEFAULT_NAME
from ..decision import Decision, OnError
from ..errors import ConfigurationError
from ..hooks import Hook, Hooks
from ..keys.request_keys import KeyFunction, client_ip
from ..limiter import as_store
from ..quota_text import QuotaLike
from ..stores import Store
from ..stores.owners import claim
from .answers.header_options import HeaderOptions, header_options
from .answers.refused import RateLimited, refuse
from .answers.responses import Connection, OnLimited, Refusal, answer_barred, answer_unavailable
from .bills import Bill
from .gate import Gate
from .lines import Denied
from .outcomes import Settling
from .penalties.lists import Barred, Lists, Test
from .penalties.penalty import Penalty
from .request_limits import SCOPE_KEY, Exchange, FreeExchange, exchange_of
from .rule_table import Defaults, Rulebook
from .rules import CostFunction, QuotaFunction, Rule
from .server_errors import answer_error, is_unexpected, would_answer
from .startup.checks import warn_of_costs, warn_of_rules, warn_of_twins, warn_of_workers
from .startup.routes import place_of
from .terms import Terms
from .websocket import Throttled

_CLIENT_IP = client_ip()


class RateLimitMiddleware:
    """Limits the HTTP requests and WebSocket handshakes of an ASGI app.

    ``quota`` applies to every request, under ``key``, at ``cost`` units each; all three may be functions of the
    connection. ``rules`` add to it, replace it or exempt from it by path and method; ``store`` is a store or its URL,
    by default this process's memory. A request takes from all its quotas or from none, in one call to the store.

    A refused request is answered with 429 and never reaches the app; ``on_limited(connection, decision)``, sync or
    async, may return another answer. ``headers`` says in which dialect every answer tells what is left:
    ``"draft-10"`` (``RateLimit`` and ``RateLimit-Policy``), ``"legacy"`` (``X-RateLimit-*``), ``"both"``, ``None``, or
    ``HeaderOptions`` for more.
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
        name: str | None = None,
        cost: float | CostFunction = 1,
        headers: str | HeaderOptions | None = "draft-10",
        on_limited: OnLimited | None = None,
        on_error: OnError | None = None,
        hooks: Iterable[Hook] = (),
        penalty: Penalty | None = None,
        allow: Test | None = None,
        deny: Test | None = None,
    ) -> None:
        self.app = app
        defaults = Defaults(DEFAULT_NAME if name is None else name, key, cost, on_error)
        self._make = partial(Rulebook, quota, tuple(rules), penalty=penalty)
        self.rulebook = self._make(defaults)
        self._bill: Callable[[Scope], Bill | Terms | None] = self._first_bill
        self._lists = None if allow is deny is None else Lists(allow, deny, on_error)
        self._store = as_store(store)
        options = header_options(headers)
        self._gate = Gate(defaults.name, self._store, key, options.told(), Refusal(on_limited, options), Hooks(hooks))
        self._take_soon, self._is_observed = self._gate.take_soon, self._gate.is_observed
        self._place = partial(self._take_place, defaults, has_name=name is not None)
        warn_of_costs(self.rulebook.lines)
        if name is not None:
            claim(self._store, self, self.rulebook.lines)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind != "http" and kind != "websocket":
            await self._pass_on(scope, receive, send)
            return
        app, begin, found = self.app, Exchange, None
        try:
            if self._lists is not None and await self._lists.allow(scope):
                begin = FreeExchange
            else:
                found = self._bill(scope)
            if type(found) is Bill and found.is_usual and not self._is_observed:
                taken = self._take_soon(found.takes)
                decisions = taken if isinstance(taken, list) else await taken
            else:
                app, decisions = await self._beyond_the_usual(found, scope)
        except Barred:
            await answer_barred(scope, send)
            return
        except Denied:
            await answer_unavailable(scope, send)
            return
        outer = scope.get(SCOPE_KEY)
        if outer is not None and outer.is_sending:
            outer.add(decisions, self._store)
            await self._go_on(app, decisions, outer, (scope, receive, send))
            return
        exchange = scope[SCOPE_KEY] = begin(self._gate, decisions, send)
        try:
            if not decisions or decisions[0].allowed:
                await app(scope, receive, exchange.send)
            else:
                await refuse(self._gate, exchange, (scope, receive, exchange.send))
        except Exception as error:
            if exchange.started or not await self._answers(error, exchange, scope, receive):
                raise
        finally:
            scope.pop(SCOPE_KEY, None)

    def _go_on(
        self, app: ASGIApp, decisions: list[Decision], exchange: Exchange, connection: Connection
    ) -> Awaitable[None]:
        """Delegate to the app, unless one of our decisions refused, as a limit within another."""
        if not decisions or decisions[0].allowed:
            return app(*connection)
        return refuse(self._gate, exchange, connection)

    async def _beyond_the_usual(self, found: Bill | Terms | None, scope: Scope) -> tuple[ASGIApp, list[Decision]]:
        """The app that is to run, and the decisions that are enforced, where there is more to do than to take.

        May raise ``Denied``.
        """
        bill = await found.ask(scope) if isinstance(found, Terms) else found
        if bill is None:
            return self.app, []
        taken = self._take_soon(bill.takes) if bill.takes else []
        decisions = taken if isinstance(taken, list) else await taken
        if bill.is_usual and not self._is_observed:
            return self.app, decisions
        enforced, app = await self._gate.noted(bill, decisions), self.app
        if bill.messages is not None:
            app = Throttled(app, self._store, bill.messages)
        if bill.dues:
            app = Settling(app, self._store, bill, [*enforced, *decisions[bill.is_enforced :]])
        return app, enforced

    async def _answers(self, error: Exception, exchange: Exchange, scope: Scope, receive: Receive) -> bool:
        """Whether an error of the app that nobody has answered is answered here, and is none any more."""
        if isinstance(error, RateLimited):
            await error(scope, receive, exchange.send)
            return True
        if is_unexpected(error) and would_answer(self, scope):
            await answer_error(error, scope, receive, exchange.send)
        return False

    def _first_bill(self, scope: Scope) -> Bill | Terms | None:
        """The bill of a request that is the first to come here."""
        outer = exchange_of(scope)
        self._place(scope, outer.gate if outer else None)
        return self._bill(scope)

    def _take_place(self, defaults: Defaults, scope: Scope, outer: Gate | None, *, has_name: bool) -> None:
        """Find out where this middleware stands; within a route or a mount its buckets are named after that."""
        if not has_name and "router" in scope:
            place = place_of(self, scope["router"])
            defaults = replace(defaults, name=f"{DEFAULT_NAME} {place or scope.get('root_path')}")
            self.rulebook, self._gate.name = self._make(defaults), defaults.name
        if outer is not None and "router" not in scope and outer.name == self._gate.name:
            warn_of_twins(self._gate.name)
        claim(self._store, self, self.rulebook.lines)
        warn_of_workers(self._store)
        warn_of_rules(self.rulebook.rules, self.app)
        self._bill = self.rulebook.bill

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand on what is no request; the beginning of the app is also that of this middleware."""
        if scope["type"] != "lifespan":
            await self.app(scope, receive, send)
            return
        try:
            self._place(scope, scope.get(SCOPE_KEY))
        except ConfigurationError as error:
            await receive()
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        scope[SCOPE_KEY] = self._gate
        await self.app(scope, receive, self._closing(send))

    def _closing(self, send: Send) -> Send:
        async def closing_send(message: Message) -> None:
            if message["type"] in ("lifespan.shutdown.complete", "lifespan.shutdown.failed"):
                await self._store.aclose()
            await send(message)

        return closing_send
