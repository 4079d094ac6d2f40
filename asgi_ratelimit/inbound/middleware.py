"""The ASGI middleware: decide, then answer or delegate."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..buckets import DEFAULT_NAME
from ..decision import Decision, OnError
from ..errors import ConfigurationError, shows_use
from ..headers.header_rendering import DialectName, HeaderOptions, header_options
from ..hooks import Hook, Hooks
from ..keys import KeyFunction
from ..keys.path_patterns import own_root_path
from ..logs import warn_once
from ..overrides import limit_text, watch_of
from ..quota_text import QuotaLike
from ..stores import Store, as_store
from ..stores.base import register
from .allow_deny_lists import ListFunction, Lists
from .config import AT_START, LimitsFile
from .delays import Receiving, require_asyncio, require_waiting
from .dependency import has_limited_route, start_limits
from .enforcer import Enforcer, RequestLimits
from .limits import RateLimited, find_handler
from .penalties import Penalty
from .plan import MAX_WAITING, SCOPE_KEY, USUAL, Options, RuleTable
from .refusals import AccessDenied, LimitUnavailable, OnLimited, checked_on_limited, send_problem
from .routes import equal_to, find_mistakes, place_of_middleware, templates_of, warn_of, warn_of_workers
from .rules import Rule, checked_rules, message_quotas, owned_quotas
from .settling import Settling
from .user_functions import CostFunction, QuotaFunction, takes
from .websockets import Throttled

_RIGHT = 'RateLimitMiddleware(app, "5/minute"), app.add_middleware(RateLimitMiddleware, quota="5/minute")'

NO_LIMITS = 'no route has a RateLimit, and RateLimitMiddleware no quota or rules: nothing is limited: quota="9/minute"'


class RateLimitMiddleware:
    """Limits the HTTP requests and WebSocket handshakes of an ASGI app.

    ``quota`` applies to every request, under ``key``, at ``cost`` units each; all three may be functions of the
    connection. ``rules`` add to it, replace it or exempt from it by path and method. ``store`` is a store or its URL,
    by default this process's memory. A request takes from all its quotas or from none, in one call to the store.

    A refused request is answered with 429 and never reaches the app; ``on_limited(connection, decision)``, sync or
    async, may return another answer. ``headers`` is the dialect in which every answer reports the units left:
    ``"draft-10"`` (``RateLimit`` and ``RateLimit-Policy``), ``"legacy"`` (``X-RateLimit-*``), ``"both"``, ``None``, or
    ``HeaderOptions`` for more. ``on_error`` says what happens without the store or if a function fails (see ``Rule``);
    ``hooks`` are called with each decision; ``penalty`` blocks a key that ``quota`` refuses again and again. ``allow``
    and ``deny`` are functions of the connection that say who is not limited here at all, and who never gets in. The
    store is closed at lifespan shutdown. A request that would be refused waits for its slot instead, if the slot is at
    most ``max_delay`` seconds away (see ``Rule``) and fewer than ``max_waiting`` requests already wait in this process.
    ``config`` is the path of a file of limits, which is read again when it changes. Its rules come after ``rules``.

    Raises ``QuotaError``, ``ConfigurationError`` or ``ValueError`` for invalid arguments.
    """

    @shows_use(_RIGHT)
    def __init__(
        self,
        app: ASGIApp,
        quota: QuotaLike | QuotaFunction | None = None,
        *,
        key: KeyFunction = USUAL.key,
        rules: Iterable[Rule] = (),
        store: Store | str | None = None,
        name: str | None = None,
        cost: float | CostFunction = 1,
        headers: DialectName | HeaderOptions | None = "draft-10",
        on_limited: OnLimited | None = None,
        on_error: OnError | None = None,
        hooks: Iterable[Hook] = (),
        penalty: Penalty | None = None,
        allow: ListFunction | None = None,
        deny: ListFunction | None = None,
        max_delay: float = 0.0,
        max_waiting: int = MAX_WAITING,
        config: str | os.PathLike[str] | None = None,
    ) -> None:
        if not (callable(app) and takes(app, 3)):
            right = f"{_RIGHT}, or WsgiToAsgi(app) of asgiref for WSGI"
            raise ConfigurationError(f"the first argument is an app of ASGI, not {app!r}: {right}")
        self.app = app
        own = Options(quota, checked_rules(rules), key, name, cost, headers, on_error, penalty, max_delay, max_waiting)
        self._file = None if config is None else LimitsFile(config, own)
        options = self._options = own if self._file is None else self._file.options
        self.store = as_store(store)
        is_own = store is None or store == "memory://"
        self._arguments = (own, on_limited, hooks, allow, deny, config) if is_own else None
        name = DEFAULT_NAME if options.name is None else options.name
        answers = header_options(options.headers), Hooks(hooks), checked_on_limited(on_limited)
        self._enforcer = Enforcer(name, self.store, options.key, *answers, require_waiting(options.max_waiting))
        self._enforcer.route_of = templates_of(app)
        self._root, self._place, self._has_started = own_root_path(app), DEFAULT_NAME, False
        self._lists = None if allow is deny is None else Lists(allow, deny, self._enforcer.failures)
        self.overrides_changed()
        self.is_unnamed = options.name is None  # whether its own quota is named after the place where it stands
        if not self.is_unnamed:
            self._own_names(self.rule_table)
        watch_of(self.store).subscribe(self)

    def options_changed(self, options: Options) -> None:
        """Apply the current options of the file, except those that count only at the next start; from any thread.

        Raises ``QuotaError``, ``ConfigurationError`` or ``ValueError`` for invalid options, and then changes nothing.
        """
        options = replace(options, **{name: getattr(self._options, name) for name in AT_START})
        table = self._table_of(options)
        if self.rule_table.limits and not table.limits:
            raise ConfigurationError('no limit is left: quota = "100/minute"')
        self._own_names(table)
        self._options, self._enforcer.key = options, options.key
        self.overrides_changed()
        warn_of(find_mistakes(self.rule_table, self.app))

    def _own_names(self, table: RuleTable) -> None:
        """Register this table's names in place of earlier ones; ``ConfigurationError`` if another limit has one."""
        quotas, messages = owned_quotas(table.declared), message_quotas(table.declared)
        is_peer = getattr(self._file, "is_like", lambda other: False)
        register(self.store, self, quotas, unlisted=messages, instead=True, is_peer=is_peer)

    def limit_texts(self) -> dict[str, str]:
        """The limits that the program itself sets, as text by name, for the log of an override."""
        return {each.name: limit_text(each.quota) + ", shadow" * each.shadow for each in self.rule_table.declared}

    @property
    def limits_nothing(self) -> bool:
        """Whether it has neither a rule that charges nor a list, and no route behind it has a limit either."""
        return not self.rule_table.limits and self._lists is None and not has_limited_route(self.app)

    def overrides_changed(self) -> None:
        """Apply the current overrides from the next request on; called from any thread."""
        while True:
            options, place, live = self._options, self._place, watch_of(self.store).live
            table = self.rule_table = self._table_of(options)
            self._enforcer.on_limited_of, self._enforcer.default = table.on_limited, table.default
            if options is self._options and place is self._place and live is watch_of(self.store).live:
                break  # else another thread has changed one of them; a lock might be held in a fork

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind != "http" and kind != "websocket":
            return await self._pass_on(scope, receive, send)
        app, receiving, is_exempt = self.app, None, False
        decisions: list[Decision] = []
        outer: RequestLimits | None = scope.get(SCOPE_KEY)
        if not self._has_started:
            self._start(scope, outer.enforcer if outer else None)
        plan = self.rule_table.plan_for(scope)
        try:
            if self._lists is not None:
                is_exempt = await self._lists.exempts(scope, self._enforcer.name, self._options.on_error)
            if plan is not None and not is_exempt:
                if plan.throttling and kind == "websocket":
                    app = Throttled(app, self._enforcer, plan)
                planned = plan.evaluate(scope)
                takes = planned if isinstance(planned, tuple) else await planned
                if takes:
                    if plan.may_wait:
                        receive = receiving = Receiving(receive)
                    decisions = await self._enforcer.take(plan, takes, scope, receiving, self._enforcer)
        except (AccessDenied, LimitUnavailable) as error:
            if outer is not None:
                await outer.refund_all()
            return await send_problem(*error.problem, scope, send)
        if outer is not None and outer.server_send is not None:  # its answer reports these decisions too
            limits = outer
            limits.inner, limits.is_exempt = self._enforcer, limits.is_exempt or is_exempt
        else:
            limits = RequestLimits(self._enforcer, send, is_exempt)
            scope[SCOPE_KEY], send = limits, limits.send
        decision = None
        if plan is not None and decisions:
            if plan.settling:
                app = Settling(app, self.store, plan, decisions)
            decision = limits.add(plan, decisions, self.store, self._enforcer.hooks)
        try:
            if decision is None or decision.allowed:
                await app(scope, receive, send)
                if limits.pending is not None and limits is not outer:
                    await limits.send_pending()
            else:
                if len(limits.taken) > 1:
                    await limits.refund_all()
                await limits.answer(decision, (scope, receive, send), self._enforcer)
        except RateLimited as error:
            if limits is outer or limits.has_started:
                raise
            await error(scope, receive, send)
        except Exception:  # perhaps an app has made another error of that of a refused charge
            if limits is outer or not await limits.send_pending():
                raise
        finally:
            if limits is not outer:
                scope.pop(SCOPE_KEY, None)
                if limits.held:
                    limits.release()

    def _table_of(self, options: Options) -> RuleTable:
        return RuleTable(options, self._enforcer.failures, self._place, self._root, watch_of(self.store).live)

    def _start(self, scope: Scope, outer: Enforcer | None) -> None:
        """Find out where this middleware stands; within a route or a mount its buckets are named after that place."""
        if not self.store.in_process or any(rule.max_delay or rule.messages for rule in self.rule_table.charging):
            require_asyncio()
        if self.is_unnamed and "router" in scope:
            place = place_of_middleware(self, scope["router"]) or scope.get("root_path", "")
            self._place = self._enforcer.name = f"{DEFAULT_NAME} {place}".rstrip()
        if self._arguments is not None and "app" in scope:
            self.arguments = (scope["app"], self._place, *self._arguments)
            equal = equal_to(self)  # itself, unless a framework builds several
            if equal._enforcer is not outer:  # which would charge each request twice
                self.store, self._enforcer = equal.store, equal._enforcer
                watch_of(self.store).subscribe(self)
        self.overrides_changed()
        self._enforcer.handler = find_handler(scope, self.app)
        start_limits(self.app, self._enforcer)
        if outer is None and self.limits_nothing:
            warn_once("a-middleware-that-limits-nothing", NO_LIMITS)
        self._own_names(self.rule_table)
        warn_of_workers(self.store)
        self._has_started = True
        warn_of(find_mistakes(self.rule_table, self.app))
        if self._file is not None:
            self._file.watch(self)

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on anything but a request; the start of the app is also the start of this middleware."""
        if scope["type"] != "lifespan":
            await self.app(scope, receive, send)
            return
        try:
            self._start(scope, scope.get(SCOPE_KEY))
        except ConfigurationError as error:
            await receive()
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            raise
        if not self.store.in_process:  # overrides of other processes apply from the first request on
            watch_of(self.store).start()
        scope[SCOPE_KEY] = self._enforcer

        async def draining_receive() -> Message:
            message = await receive()
            if message["type"] == "lifespan.shutdown":  # hooks may need what the app closes
                await self._enforcer.hooks.aclose()
            return message

        async def closing_send(message: Message) -> None:
            if message["type"] in ("lifespan.startup.failed", "lifespan.shutdown.complete", "lifespan.shutdown.failed"):
                await self._enforcer.hooks.aclose()
                await self.store.aclose()
            await send(message)

        await self.app(scope, draining_receive, closing_send)
