"""Hooks: functions of the program that are called with every decision. They see decisions and never change them.

They get an event for each decision, and a failure for each function of the program that fails. Those of an
``AdaptiveTransport`` get a change of what it knows about a server instead.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Iterable
from contextvars import Context
from dataclasses import dataclass, field
from inspect import isawaitable, iscoroutine
from typing import Any, Literal, TypeAlias

from starlette.types import Scope

from .background import ByLoop, background_loop, keep, see_all_through
from .buckets import DEFAULT_NAME
from .clock import Clock, monotonic_us
from .decision import Charge, Decision, is_outage, tightness
from .errors import ConfigurationError, checked_flag, require_number, shows_use
from .keys.base import lacks_its_call
from .logs import FailureLog
from .quotas import MAX_UNITS, SECOND_US, InFlight, Quota
from .stores import Store
from .stores.base import StoreCall

__all__ = [
    "ChangeHook",
    "ChangeKind",
    "Event",
    "Failure",
    "FailureHook",
    "Hook",
    "LimitChange",
    "ObservedRequest",
    "Result",
    "StoreCall",
    "failures",
    "log_refusals",
]

Result: TypeAlias = Literal["allowed", "refused", "shadowed"]
"""The outcome of a decision: ``"shadowed"`` is a refusal by a shadow rule, which the request passes anyway."""

# Returns the template of a request's route.
RouteOf: TypeAlias = Callable[[Scope], str | None]


@dataclass(slots=True, eq=False, repr=False)
class ObservedRequest:
    """The request that a decision is about: its ASGI ``scope``, as it is now, because the app adds to it."""

    scope: Scope
    _route_of: RouteOf

    @property
    def route(self) -> str | None:
        """The template of its route; see ``Event.route``."""
        return self._route_of(self.scope)


@dataclass(frozen=True, slots=True)
class Event:
    """A ``decision`` of the middleware, dependency, limiter, ``@pace`` or transport with this ``name``.

    ``latency`` is the number of seconds that the store took to answer; ``None`` for a call that waits for its slot, and
    for all but the first of several decisions in one answer. ``waited`` is the number of seconds that such a call, or a
    request, has waited, including the answer of the store; otherwise ``None``. ``request`` is the request to the app;
    ``None`` for any other call. An event equals one with the same name and decision.
    """

    name: str
    decision: Decision
    latency: float | None = field(default=None, compare=False)
    waited: float | None = field(default=None, compare=False)
    request: ObservedRequest | None = field(default=None, compare=False, repr=False)

    @property
    def result(self) -> Result:
        """The outcome of the decision, in one word."""
        return "allowed" if self.decision.allowed else "shadowed" if self.decision.shadow else "refused"

    @property
    def charge(self) -> Charge:
        """The charge on the binding quota: the refusing one with the longest wait, or else that with the least left."""
        charges = self.decision.charges
        if len(charges) == 1:
            return charges[0]
        states = self.decision.states
        return charges[states.index(min(states, key=tightness))]

    @property
    def rule(self) -> str:
        """The name of the rule whose limit decided; for a limiter, ``@pace`` or a transport, its own name."""
        return self.charge.name or self.name

    @property
    def quota(self) -> Quota:
        """The binding quota."""
        return self.charge.quota

    @property
    def key(self) -> str:
        """The key of the bucket, as the key function returned it: never use it as a label of a metric."""
        return self.charge.key

    @property
    def degraded(self) -> bool:
        """Whether it was decided without the store."""
        return self.decision.degraded

    @property
    def shadow(self) -> bool:
        """Whether it was decided and counted, but not enforced."""
        return self.decision.shadow

    @property
    def method(self) -> str | None:
        """The method of the request; ``None`` for a WebSocket, and if there is no request."""
        return None if self.request is None else self.request.scope.get("method")

    @property
    def path(self) -> str | None:
        """The path of the request, which clients choose: never use it as a label of a metric."""
        return None if self.request is None else self.request.scope["path"]

    @property
    def route(self) -> str | None:
        """The template of the route that the request is for, such as ``"/users/{id}"``.

        It is worked out when it is read. ``None`` if the app has no such route, and ``"/{path:path}"`` if its routes
        are not Starlette's.
        """
        return None if self.request is None else self.request.route


Hook: TypeAlias = Callable[[Event], Awaitable[object] | None]
"""A function that is called after each decision.

It is called in the event loop, so it must not block. What an ``async`` function returns is awaited in the background;
for code without an event loop, on that of the package.
"""


@dataclass(frozen=True, slots=True)
class Failure:
    """A function of the program that ``failed``, by raising or by what it returned.

    ``failed`` is the argument that the function was passed as: ``"key"``, ``"quota"``, ``"cost"``, ``"settle"``,
    ``"allow"``, ``"deny"`` or ``"on_limited"``. ``name`` is the name of the rule or dependency, or else of the
    middleware.
    """

    name: str
    failed: str
    error: Exception


FailureHook: TypeAlias = Callable[[Failure], Awaitable[object] | None]
"""A function that is called after each failure, as a ``Hook`` is."""


class failures:  # noqa: N801  # a function to its users
    """A hook that is called with each ``Failure``, and with no decision: ``hooks=[failures(count)]``.

    Any other hook with a method ``failed`` gets failures as well, as the argument of that method.
    """

    @shows_use("failures(print)")
    def __init__(self, function: FailureHook) -> None:
        if not callable(function):
            raise ConfigurationError(f"a hook is a function of a Failure, not {function!r}: hooks=[failures(print)]")
        self.failed = function

    def __call__(self, event: Event) -> None:
        """Ignore decisions."""


ChangeKind: TypeAlias = Literal["learned", "limit changed", "migrated", "paused", "pioneer failed"]


@dataclass(frozen=True, slots=True)
class LimitChange:
    """An ``AdaptiveTransport`` has learned something about a ``bucket`` of a ``host``; ``text`` is a sentence about it.

    ``kind`` is one of

    * ``"learned"``: an answer, or another process, has reported a limit for the first time;
    * ``"limit changed"``: the limit is another one now;
    * ``"migrated"``: requests of a route turn out to use other buckets than before;
    * ``"paused"``: the server has refused a request, and others wait;
    * ``"pioneer failed"``: the first request to an unknown bucket got no answer, or a server error without limits.

    ``limit`` and ``remaining`` are units, or ``None`` if unknown, and ``paused_for`` is in seconds.
    """

    host: str
    bucket: str
    kind: ChangeKind
    text: str
    limit: float | None
    remaining: float | None
    paused_for: float


ChangeHook: TypeAlias = Callable[[LimitChange], None]
"""A function that is called with each change, in the event loop or thread of a request, so it must not block."""


# The log of refusals

logger = logging.getLogger("asgi_ratelimit.refusals")


class log_refusals:  # noqa: N801  # a function to its users
    """A hook that logs refused requests and calls, at most one line for each rule in ``every`` seconds.

    A line says how many more were refused since the previous one. Its fields, for logs that machines read, are
    ``rule``, ``quota``, ``route``, ``method``, ``retry_after`` in seconds, and ``unlogged``; and ``key``, only with
    ``keys``. The logger is ``asgi_ratelimit.refusals``. A ``clock`` replaces the machine's. A request that only shadow
    rules refuse passes, and is not logged. During an outage of the store, the line says so, and ``quota`` is ``None``.
    Raises ``ConfigurationError`` for an ``every`` that is not a number of seconds, and for a ``level`` that ``logging``
    does not have.
    """

    @shows_use("log_refusals(every=1.0)")
    def __init__(
        self, *, level: int = logging.WARNING, keys: bool = False, every: float = 1.0, clock: Clock | None = None
    ) -> None:
        require_number("every must be seconds from 0 up", every, 0, MAX_UNITS, "log_refusals(every=1.0)", (int, float))
        if not isinstance(level, int):
            raise ConfigurationError(f"level must be one of logging, not {level!r}: log_refusals(level=logging.INFO)")
        self._level = level
        self._keys = checked_flag("keys", keys)
        self._log = FailureLog(every * SECOND_US, monotonic_us if clock is None else clock.now_us)

    def __call__(self, event: Event) -> None:
        """Log a refusal, unless its rule had a line less than ``every`` seconds ago."""
        if event.result != "refused" or not logger.isEnabledFor(self._level):
            return
        unlogged = self._log.unreported(event.rule)
        if unlogged is None:
            return
        is_out, retry_after = is_outage(event.decision), event.decision.retry_after
        fields = {
            "rule": event.rule,
            "quota": None if is_out else event.quota.name,
            "route": event.route,
            "method": event.method,
            "retry_after": None if retry_after == math.inf else round(retry_after, 3),
            "unlogged": unlogged,
            **({"key": event.key} if self._keys else {}),
        }
        text = " ".join([f"{name}={value!r}" for name, value in fields.items() if value is not None])
        logger.log(self._level, "refused%s: %s", ", because the store is out" if is_out else "", text, extra=fields)


# Calling hooks

# The most calls that wait, for each list of hooks and event loop. Further calls are dropped.
MAX_CALLS = 1000

# How many seconds closing waits for them.
CLOSE_WITHIN = 5.0


class Hooks:
    """Several hooks as one. An exception of a hook is logged; the request and the other hooks go on.

    A hook may also have these methods, which are then called: ``failed(failure)``; ``queued(name, change)``, with 1
    when a caller begins to wait for its slot, and -1 when it goes; ``held(name, change)``, with 1 when a request gets a
    place of ``InFlight``, and -1 when it comes back; and ``store_called(call)``, after each call of a store. What a
    hook returns to be awaited is awaited in the background, one after another, on the event loop that it comes from;
    for code without one, on that of the package. Raises ``ConfigurationError`` for anything but several hooks, and for
    a hook that is not callable.
    """

    def __init__(self, hooks: Iterable[Hook] | Iterable[ChangeHook], argument: str = "an Event") -> None:
        if not isinstance(hooks, Iterable):
            raise ConfigurationError(f"hooks must be a list of functions of {argument}, not {hooks!r}: hooks=[print]")
        self._hooks: tuple[Any, ...] = tuple(hooks)
        for hook in self._hooks:
            if not callable(hook):
                raise ConfigurationError(f"a hook is a function of {argument}, not {hook!r}: hooks=[print]")
            if lacks_its_call(hook):
                raise ConfigurationError(f"the hook {hook.__name__} lacks its call: hooks=[{hook.__name__}()]")
        self._failure_hooks = [hook.failed for hook in self._hooks if callable(getattr(hook, "failed", None))]
        self._place_hooks = [hook.held for hook in self._hooks if callable(getattr(hook, "held", None))]
        self._queue_hooks = [hook.queued for hook in self._hooks if callable(getattr(hook, "queued", None))]
        self._log = FailureLog()
        # What hooks have returned, which is still to be awaited, one after another.
        self._calls: ByLoop[set[asyncio.Task[None]]] = ByLoop()
        self._turns: ByLoop[asyncio.Lock] = ByLoop()

    def __bool__(self) -> bool:
        return bool(self._hooks)

    def __call__(self, event: Event | LimitChange) -> None:
        """Call all hooks with an event or a change."""
        self._call(self._hooks, event)

    def watch(self, store: Store) -> None:
        """Call the hooks that have ``store_called`` with the calls of this store."""
        for hook in self._hooks:
            if callable(getattr(hook, "store_called", None)):
                store.observe(hook)

    def failed(self, failure: Failure) -> None:
        """Call all hooks for failures with this one."""
        self._call(self._failure_hooks, failure)

    def queued(self, name: str, change: int) -> None:
        """Call all hooks for queues: a caller begins to wait, or goes."""
        self._call(self._queue_hooks, name, change)

    def held(self, decision: Decision, change: int) -> None:
        """Call all hooks for places: a request gets those of a decision, or has given them back."""
        for charge in decision.charges if self._place_hooks and decision.allowed else ():
            if isinstance(charge.quota, InFlight):
                self._call(self._place_hooks, charge.name or DEFAULT_NAME, change)

    async def aclose(self) -> None:
        """Wait for the calls of asynchronous hooks on this event loop, for at most 5 s; later they go on."""
        await see_all_through(self, CLOSE_WITHIN)

    def _call(self, hooks: Iterable[Any], *arguments: object) -> None:
        for hook in hooks:
            try:
                returned = hook(*arguments)
                if returned is not None and isawaitable(returned):
                    self._await_later(hook, returned)
            except Exception as error:  # noqa: BLE001  # the hook is the user's, and may raise anything
                self._log.report(f"the hook {hook!r} failed", error, id(hook))

    def _await_later(self, hook: object, call: Awaitable[object]) -> None:
        if asyncio._get_running_loop() is None:
            background_loop.loop().call_soon_threadsafe(self._add, hook, call, context=Context())
        else:
            self._add(hook, call)

    def _add(self, hook: object, call: Awaitable[object]) -> None:
        calls = self._calls.of_running(set)
        if len(calls) < MAX_CALLS:
            task = keep(self, asyncio.get_running_loop().create_task(self._await(hook, call), context=Context()))
            calls.add(task)
            task.add_done_callback(calls.discard)
            return
        if iscoroutine(call):
            call.close()
        full = asyncio.QueueFull(f"{MAX_CALLS} calls of hooks are waiting")
        self._log.report(f"a call of the hook {hook!r} was dropped", full, (id(hook), "dropped"))

    async def _await(self, hook: object, call: Awaitable[object]) -> None:
        try:
            async with self._turns.of_running(asyncio.Lock):
                await call
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  # the hook is the user's
            self._log.report(f"the hook {hook!r} failed", error, id(hook))
        finally:
            if iscoroutine(call):
                call.close()  # it has not begun, if the program ends before its turn
