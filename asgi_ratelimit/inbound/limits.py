"""How a request is refused inside the app, and what its endpoint charges."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeAlias

from anyio import sleep_forever
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketState

from ..decision import Charge, Decision, Take, checked_actual, is_outage
from ..errors import ConfigurationError, RateLimitError, StoreError, must_await
from ..keys.path_patterns import nested_apps
from ..logs import warn_once
from ..overrides import watch_of
from ..quotas import InFlight
from ..stores import Store, settle
from .enforcer import Handler, RequestLimits
from .penalties import is_blocked
from .plan import SCOPE_KEY
from .refusals import RETRY_SOON, AppArguments, LimitUnavailable, OnLimited, send_problem
from .rules import STRICTNESS
from .settling import Taken, give_back, see_through

# Refusals


# An exception handler, as in Starlette and FastAPI
_ExceptionHandler: TypeAlias = Callable[[Any, Any], Any]


def find_handler(scope: Scope, app: Any) -> Handler | None:
    """An app's own handler of such errors, which also answers the requests that the middleware refuses."""
    apps = [scope.get("app"), *nested_apps(app)]
    handlers = [_handler_of(each.exception_handlers) for each in apps if isinstance(each, Starlette)]
    handler = next(filter(None, handlers), None)
    return None if handler is None else partial(_handled_by, handler)


def _handler_of(*handlers: Any) -> _ExceptionHandler | None:
    """The program's handler for ``RateLimited``, for 429 or for ``HTTPException``, of Starlette or FastAPI."""
    found = [each[kind] for each in handlers if isinstance(each, dict) for kind in _HANDLED if kind in each]
    of_frameworks = ("starlette.", "fastapi.")
    return next((each for each in found if not str(getattr(each, "__module__", "")).startswith(of_frameworks)), None)


def _handled_by(handler: _ExceptionHandler, limits: RequestLimits, connection: AppArguments) -> OnLimited | None:
    """An exception handler as an ``on_limited``; ``None`` for handshakes, whose handlers only the framework calls."""
    scope, receive, _ = connection

    async def answer(_: HTTPConnection, decision: Decision) -> Any:
        arguments = Request(scope, receive), RateLimited(limits, decision)
        if inspect.iscoroutinefunction(handler):
            return await handler(*arguments)
        return await run_in_threadpool(handler, *arguments)

    return answer if scope["type"] == "http" else None


class RateLimited(RateLimitError, HTTPException):
    """Raised when a request is refused inside the app: by ``Depends(RateLimit(...))``, or by ``limits().charge``.

    It needs no handler: the request is answered like any refused request, unless the app has a handler for this class,
    for 429 or for ``HTTPException``. Such a handler also answers the requests that a middleware refuses, unless that
    has an ``on_limited``. ``decision`` is the refusal; ``None`` means that a function failed whose rule then lets
    nobody pass.
    """

    def __init__(self, limits: RequestLimits, decision: Decision | None, on_limited: OnLimited | None = None) -> None:
        headers = [RETRY_SOON] if decision is None else limits.enforcer.options.retry_after(decision)
        status = 503 if decision is None or is_outage(decision) else 429
        detail = "rate limit unavailable" if status == 503 else "rate limit exceeded"
        # With a middleware, `send` adds these
        is_alone = decision is not None and limits.server_send is None and status == 429 and not is_blocked(decision)
        reports = limits.enforcer.dialect(limits.reported) if is_alone and limits.enforcer.dialect else ()
        super().__init__(status, detail, {name.decode(): value.decode() for name, value in (*headers, *reports)})
        self.decision = decision
        self._limits = limits
        self._on_limited = on_limited
        self._retry_after = headers

    def with_handler(self, scope: Scope, *, in_any_case: bool = False) -> RateLimited:
        """This error, after giving the framework a handler for it, unless the app has one.

        The answer of the app's own gets ``Retry-After``, as to a request that the middleware refuses. Without one, this
        error is the answer ``in_any_case``, whatever a framework does with it.
        """
        handlers: tuple[dict[Any, Any], dict[Any, Any]] = scope.get("starlette.exception_handlers") or ({}, {})
        by_class, by_status = handlers
        is_usual = _handler_of(by_class, by_status if self.status_code == 429 else None) in (None, _handle)
        error = self if scope["type"] == "http" else RefusedHandshake(self._limits, self.decision, self._on_limited)
        if is_usual or error is not self:
            by_class.setdefault(type(error), _handle)
        elif self._limits.server_send is not None:
            self._limits.retry_after = self._retry_after, 400  # an endpoint may catch it, and answer as if nothing was
        if is_usual and in_any_case:
            self._limits.pending = error.status_code, partial(error, scope, _NOTHING, self._limits.send)
        return error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request, as an ASGI app."""
        limits = self._limits
        limits.pending = None
        if limits.server_send is None:
            limits.server_send, send = send, limits.send
        if self.decision is None:
            await send_problem(*LimitUnavailable.problem, scope, send)
        else:
            await limits.answer(self.decision, (scope, receive, send), limits.enforcer, self._on_limited)


class RefusedHandshake(RateLimited):
    """A refused WebSocket, which the handlers of an app do not answer."""


# What an app may have a handler for that also answers refusals, in the order in which frameworks look for one
_HANDLED: Final = (429, RateLimited, HTTPException)


async def _handle(connection: Request | WebSocket, error: RateLimited) -> RateLimited | None:
    """The handler of such an error, for Starlette and FastAPI."""
    if isinstance(connection, WebSocket) and connection.application_state is WebSocketState.CONNECTED:
        await connection.close(1008, "rate limit exceeded")
        return None
    return error


# The ``receive`` of an answer, instead of the app's, which may have read everything: it never returns
_NOTHING: Any = sleep_forever


# What an endpoint charges

_USE = 'await limits(request).{}(3, name="login")'


class Limits:
    """What a request was charged, and how to charge more or to give back.

    ``name`` narrows a method down to the charges of one rule, dependency or middleware, or of one quota. ``charge``
    also works for a request to which no limit applies, and charges nothing. A ``name`` that no limit has is logged
    once. Of more than a hundred decisions on a request or WebSocket, the later ones are neither listed nor given back.
    """

    def __init__(self, connection: HTTPConnection, request_limits: RequestLimits) -> None:
        self._connection = connection
        self._request_limits = request_limits

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """The decisions on this request, in order: all, or the first hundred."""
        return tuple([decision for _, decision in self._request_limits.taken])

    @property
    def decision(self) -> Decision | None:
        """The decision with the least left; ``None`` if no limit applies."""
        return min(self.decisions, key=lambda each: each.remaining, default=None)

    @must_await
    async def charge(self, cost: float = 1, *, name: str | None = None, required: bool = True) -> bool:
        """Take ``cost`` more units of each charge of this request, all or nothing; ``True`` if they were taken.

        Raises ``RateLimited`` where they do not fit. The request is then answered with 429, also where a framework
        makes something else of the error, or somebody catches it. With ``required=False`` nothing is raised: it returns
        ``False``, and the answer is up to the endpoint. What was charged before stays charged. A cost of 0 charges
        nothing. Raises ``ValueError`` for a cost that is not a finite number from 0 up.
        """
        enforcer = self._request_limits.enforcer
        units = checked_actual(cost, _USE.format("charge"))
        self._look_for("charge", name)
        taken: list[Taken] = []
        for store, take in self._takes(units, name) if units else ():
            decision = await enforcer.take_more(store, take, self._connection.scope, taken)
            if not decision.allowed:
                await give_back(taken)
                if required and not decision.degraded:
                    decision = await self._until_repeated(decision, store)
                self._request_limits.add_update(decision, store)
                if not required:
                    return False
                raise RateLimited(self._request_limits, decision).with_handler(self._connection.scope, in_any_case=True)
            taken.append((store, decision))
        for store, decision in taken:
            self._request_limits.add_update(decision, store)
        return True

    async def _until_repeated(self, refusal: Decision, store: Store) -> Decision:
        """A refusal with the time after which the whole request passes, which is then charged from the start again."""
        whole = {each.bucket: each for each in refusal.charges}
        taken = [each for of, each in self._request_limits.taken if of is store and each.allowed and each.id]
        for each in [charge for decision in taken for charge in decision.charges]:
            if not isinstance(each.quota, InFlight):  # the request gives its place back
                more = whole[each.bucket].cost if each.bucket in whole else 0
                whole[each.bucket] = replace(each, cost=each.cost + more)
        try:
            foreseen = await store.peek(Take(tuple(whole.values())))
        except (StoreError, ConfigurationError):  # or they are too many for one take
            return refusal
        return replace(refusal, wait_us=max(refusal.wait_us, foreseen.wait_us))

    async def refund(self, cost: float | None = None, *, name: str | None = None) -> None:
        """Give back ``cost`` units of each charge of this request, or all of them.

        Each charge is settled once: a second refund, or a rule's ``settle`` after it, changes nothing. During an outage
        of the store, it is done once the store is back. Raises ``ValueError`` as ``charge``.
        """
        units = math.inf if cost is None else checked_actual(cost, _USE.format("refund"))
        await self._settle("refund", name, lambda charge: max(charge.cost - units, 0.0))

    async def settle(self, actual: float, *, name: str | None = None) -> None:
        """Make each charge of this request come to ``actual`` units: less is given back, more is debited.

        Each charge is settled once; during an outage of the store, once the store is back. Raises ``ValueError`` as
        ``charge``.
        """
        units = checked_actual(actual, _USE.format("settle"))
        await self._settle("settle", name, lambda charge: units)

    async def _settle(self, verb: str, name: str | None, actual: Callable[[Charge], float]) -> None:
        """Settle the charges with this name, also for a request that is being cancelled."""
        self._look_for(verb, name)

        async def settle_each() -> None:
            for store, decision in self._request_limits.taken:
                charges = decision.charges
                await settle(store, decision, [actual(each) if _is_of(each, name) else None for each in charges])

        if self._request_limits.taken:
            await see_through([store for store, _ in self._request_limits.taken], settle_each)

    def _look_for(self, verb: str, name: str | None) -> None:
        """Warn about a name that no limit of this request has, and no other limit in the same stores."""
        charges = [charge for decision in self.decisions for charge in decision.charges]
        if name is None or any(_is_of(charge, name) for charge in charges):
            return
        stores = [self._request_limits.enforcer.store, *[store for store, _ in self._request_limits.taken]]
        names = {name for store in stores for name in watch_of(store).limit_texts()}
        if name not in names:
            here = dict.fromkeys(each for charge in charges for each in (charge.name, charge.quota.name))
            listed = ", ".join(map(repr, here or sorted(names))) or "none"
            problem = f"{verb}(name={name!r}) changes nothing: no limit has this name; the names are {listed}"
            warn_once("a-name-that-no-limit-has", problem)

    def _takes(self, cost: float, name: str | None) -> list[tuple[Store, Take]]:
        """One take for each store, of everything that this request is charged there.

        A later one may be refused, and the earlier ones are given back.
        """
        takes = []
        for store in {id(store): store for store, _ in self._request_limits.taken}.values():
            decisions = [decision for of, decision in self._request_limits.taken if of is store]
            charges = {each.bucket: each for decision in decisions for each in decision.charges}
            rates = [each for each in charges.values() if not isinstance(each.quota, InFlight)]
            more = [replace(each, cost=cost) for each in rates if _is_of(each, name)]
            if more:
                named = [each.take.on_error for each in decisions if any(_is_of(of, name) for of in each.charges)]
                takes.append((store, Take(tuple(more), on_error=max(named, key=STRICTNESS.index))))
        return takes


def limits(connection: HTTPConnection) -> Limits:
    """The limits of a request or WebSocket, for its endpoint: ``await limits(request).charge(5)``.

    As a FastAPI dependency: ``Annotated[Limits, Depends(limits)]``. Raises ``ConfigurationError`` if neither
    ``RateLimitMiddleware`` nor ``RateLimit`` has seen the request.
    """
    current: RequestLimits | None = connection.scope.get(SCOPE_KEY)
    if current is None:
        right = "app.add_middleware(RateLimitMiddleware, quota=...)"
        raise ConfigurationError(f"limits() needs RateLimitMiddleware around the app, or a RateLimit: {right}")
    return Limits(connection, current)


def _is_of(charge: Charge, name: str | None) -> bool:
    return name is None or name in (charge.name, charge.quota.name)
