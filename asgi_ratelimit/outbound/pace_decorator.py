"""``@pace``: a function whose calls wait for their slots."""

from __future__ import annotations

import asyncio
import functools
import inspect
import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ParamSpec, TypeAlias, TypeVar, cast

from ..background import ByLoop
from ..decision import Take, max_wait_of
from ..errors import ConfigurationError, QuotaError, shows_use
from ..hooks import Hook
from ..limiter.live_quotas import Cost, Key
from ..quota_text import QuotaLike
from ..stores import Store
from ..waiting.drivers import Flow, run_async, run_sync
from ..waiting.waiter import SlotWaiter
from .outbound_limiter import OutboundLimiter
from .request_values import resolved, tried

P = ParamSpec("P")
R = TypeVar("R")

# A key, or a function of the call's arguments that it names; or one of these for each quota, by name.
KeyOfCall: TypeAlias = Key | Callable[..., Key] | Mapping[str, "str | bytes | Callable[..., str | bytes]"]
# A cost, or a function of the call's arguments that it names; or one of these for each quota, by name.
CostOfCall: TypeAlias = Cost | Callable[..., Cost] | Mapping[str, "float | Callable[..., float]"]

# A priority, or a function of the call's arguments that it names.
PriorityOfCall: TypeAlias = float | Callable[..., float]


@shows_use('@pace("10/s", key=lambda account: account.id)')
def pace(
    quota: QuotaLike,
    *,
    key: KeyOfCall | None = None,
    store: Store | str | None = None,
    cost: CostOfCall = 1,
    max_delay: float | None = None,
    margin: float = 0.0,
    priority: PriorityOfCall = 0,
    name: str | None = None,
    hooks: Iterable[Hook] = (),
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a function, with or without ``async``, so that its calls keep to ``quota``: each books a slot and waits.

    ``"10/s"`` spaces calls evenly; ``"10/s burst 5"`` lets five go at once from idle. Several quotas apply together.
    ``key`` says which bucket is charged, for example ``key=lambda account: account.id`` for the argument ``account`` of
    the call; without one, all calls share the key ``""``. ``cost`` is in units, and may be a function in the same way.
    ``store`` is a store or its URL, by default this process's memory. The buckets are those of a ``Limiter`` with the
    same ``name``, quota and store. Without a ``name``, each function has its own buckets, under its qualified name.
    Another quota under the same name and store raises ``ConfigurationError``: beside a middleware with ``"10/s"``,
    write ``"10/s burst 10"``.

    No more calls leave this process than the quota admits, measured when they leave. ``margin`` is the part of the
    limit that stays unused, for a service that counts more strictly than it says. Among the calls that wait for the
    same charges, one with a higher ``priority``, a number or a function in the same way, goes first. ``hooks`` are
    called with the decision of every call, when it leaves or is refused.

    A call raises ``PaceTimeout`` at once, and books nothing, if its slot is more than ``max_delay`` seconds away.
    A call that is cancelled while it waits gives its slot back, and the calls behind it move up. Raises ``QuotaError``,
    and ``ConfigurationError`` for anything that cannot be paced, such as a generator.
    """
    if callable(quota):
        raise QuotaError(f'@pace lacks its quota: @pace("5/s") goes on {quota!r}')
    shared = OutboundLimiter(quota, margin, name, "pace", store=store, hooks=hooks)
    key, max_wait = "" if key is None else key, max_wait_of(max_delay)
    checked_priority(priority)

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        call: Callable[..., Any] = function
        is_async = is_coroutine_function(call)
        limiter = shared if name is not None else shared.renamed(_name_of(call))
        waiter = SlotWaiter(limiter.store, margin=limiter.margin, renewed=limiter.live.renewed)
        Take(limiter.charges(resolved(key, lambda _: ""), resolved(cost, lambda _: 1)))  # what is wrong raises now
        key_of, cost_of = from_call(key, call, "key"), from_call(cost, call, "cost")
        priority_of = from_call(priority, call, "priority")

        def acquire(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Flow[Any]:
            first = checked_priority(priority_of(args, kwargs)) if callable(priority) else priority
            take = Take(limiter.live.charges(key_of(args, kwargs), cost_of(args, kwargs)), max_wait)
            return limiter.admitted(take, functools.partial(waiter.wait, priority=first))

        async def paced_async(*args: Any, **kwargs: Any) -> Any:
            if (turn := turn_to_begin()) is not None:
                await turn
            await run_async(acquire(args, kwargs))
            return await call(*args, **kwargs)

        def paced_in_thread(*args: Any, **kwargs: Any) -> Any:
            run_sync(acquire(args, kwargs))
            return call(*args, **kwargs)

        return cast("Callable[P, R]", functools.wraps(call)(paced_async if is_async else paced_in_thread))

    return decorate


# How many callers begin to wait in one iteration of an event loop.
AT_ONCE = 50


class _Starts:
    """The callers of one event loop that begin to wait, and those that wait for their turn to begin."""

    def __init__(self) -> None:
        self._loop, self._begun = asyncio.get_running_loop(), 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    def turn(self) -> asyncio.Future[None] | None:
        """``None`` for a caller that begins at once, or a future that is done in a later iteration."""
        self._begun += 1
        if self._begun == 1:
            self._loop.call_soon(self._begin_others)
        if self._begun <= AT_ONCE:
            return None
        self._waiting.append(self._loop.create_future())
        return self._waiting[-1]

    def _begin_others(self) -> None:
        waiting = [self._waiting.popleft() for _ in range(min(AT_ONCE, len(self._waiting)))]
        self._begun = AT_ONCE if waiting else 0  # who comes in this iteration is behind them
        for each in waiting:
            if not each.done():  # else it was cancelled
                each.set_result(None)
        if waiting:
            self._loop.call_soon(self._begin_others)


_starts: ByLoop[_Starts] = ByLoop()


def turn_to_begin() -> asyncio.Future[None] | None:
    """``None`` if a caller may begin to wait, or else a future that is done when it may.

    Thousands that come at once begin in several iterations of their loop: otherwise, all of them would book before
    anything else runs.
    """
    loop: Any = asyncio._get_running_loop()  # ``None`` without asyncio: what comes next says what to do
    starts = _starts.get(loop) or (loop and _starts.of_running(_Starts))
    return starts.turn() if starts else None


def is_coroutine_function(function: object) -> bool:
    """Whether a function has ``async``; ``ConfigurationError`` if ``@pace`` cannot go on it."""
    if isinstance(function, (staticmethod, classmethod, property)):
        raise ConfigurationError(f"put @pace below @{type(function).__name__}, not above it")
    if isinstance(function, type) or not callable(function):
        raise ConfigurationError(f"@pace goes on a function, not on {function!r}")
    if _is(inspect.isgeneratorfunction, function) or _is(inspect.isasyncgenfunction, function):
        # It runs between its values, after its call: a slot would pace only its start.
        problem = f"@pace cannot decorate a generator function: {function!r}: put @pace on the function that it calls"
        right = "for each value, or book each value with Limiter.pace(key) and sleep for decision.delay"
        raise ConfigurationError(f"{problem} {right}")
    if _is(inspect.iscoroutinefunction, function):
        return True
    innermost = inspect.unwrap(function)
    if inspect.iscoroutinefunction(innermost) or inspect.isasyncgenfunction(innermost):
        problem = "is made of an async function without being async itself, so that a wait would block the event loop"
        right = "put @pace below the other decorator, next to the def, or await a function under @pace inside"
        raise ConfigurationError(f"{function!r} {problem}: {right}")
    return False


def _is(kind: Callable[[Any], bool], function: Callable[..., Any]) -> bool:
    """Whether a function is of this kind, or an object whose ``__call__`` is."""
    return kind(function) or kind(getattr(function, "__call__", None))  # noqa: B004  # it is known to be callable


def checked_priority(priority: Any) -> Any:
    """``priority``, if it is a finite number or a function; ``ConfigurationError`` otherwise."""
    is_number = isinstance(priority, (int, float)) and not isinstance(priority, bool)
    if (is_number and abs(priority) <= sys.float_info.max) or callable(priority):  # false for NaN, too
        return priority
    raise ConfigurationError(f"priority must be a finite number, not {priority!r}: priority=1 goes before priority=0")


def _name_of(function: Callable[..., Any]) -> str:
    named = inspect.unwrap(function)
    if isinstance(named, functools.partial):
        named = named.func
    if hasattr(named, "__qualname__") and hasattr(named, "__module__"):  # a method of a built-in type has no module
        return f"{named.__module__}.{named.__qualname__}"
    raise ConfigurationError(f'{function!r} has no name for its buckets: pace(..., name="api")')


# Keys, costs and priorities that depend on the arguments of a call


# Maps the positional and the keyword arguments of a call to a value.
Resolve: TypeAlias = Callable[[tuple[Any, ...], Mapping[str, Any]], Any]


def from_call(given: Any, function: Callable[..., Any], what: str) -> Resolve:
    """How to resolve ``given``, a value or a function of some arguments, for each call of ``function``.

    Raises ``ConfigurationError`` if ``given`` has ``async``, or needs an argument that ``function`` does not have.
    """
    if isinstance(given, Mapping):
        parts = {name: from_call(part, function, what) for name, part in given.items()}
        return lambda args, kwargs: {name: part(args, kwargs) for name, part in parts.items()}
    if not callable(given):
        return lambda args, kwargs: given
    tried(what, None, given)
    try:
        signature, own = inspect.signature(function), inspect.signature(given)
    except ValueError as error:  # one of them is built in
        right = f"def call(account): ..., with {what}=lambda account: account.id"
        problem = f"{what}={given!r} gets arguments of {function!r} by their names, and one of them has no names"
        raise ConfigurationError(f"{problem}: {right}") from error
    names = _parameters(own, signature, what)
    places = [list(signature.parameters).index(name) for name in names]
    is_simple = all(each.kind is each.POSITIONAL_OR_KEYWORD for each in signature.parameters.values())
    usual = len(signature.parameters) if is_simple else -1

    def resolve(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        if not kwargs and len(args) == usual:  # for a tenth of the time
            return given(**dict(zip(names, map(args.__getitem__, places))))
        call = signature.bind(*args, **kwargs)
        call.apply_defaults()
        return given(**{name: call.arguments[name] for name in names})

    return resolve


def _parameters(own: inspect.Signature, signature: inspect.Signature, what: str) -> list[str]:
    """The names of the parameters of a function, all of which a call has as arguments."""
    names = []
    for parameter in own.parameters.values():
        named = parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        if named and parameter.name in signature.parameters:
            names.append(parameter.name)
        elif parameter.default is parameter.empty:
            available = ", ".join(signature.parameters) or "none"
            right = f"pace(..., {what}=lambda account: account.id) gets the argument named account"
            raise ConfigurationError(f"{what} needs {parameter}, but a call has the arguments {available}: {right}")
    return names
