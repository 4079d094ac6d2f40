"""The wrappers that ``@pace`` puts around a function, with or without ``async``, and the functions that it refuses."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from ..decision import Take
from ..errors import ConfigurationError
from ..limiter import Limiter
from ..waiting import Flow, SlotWaiter, run_async, run_sync

Function: TypeAlias = Callable[..., Any]
TakeOfCall: TypeAlias = Callable[[tuple[Any, ...], Mapping[str, Any]], Take]
"""Maps the positional and the keyword arguments of a call to its take."""


@dataclass(slots=True)
class CallWaiter:
    """Waits for the slots of a function's calls, counts the decisions, and calls the limiter's hooks with them."""

    waiter: SlotWaiter
    take_of: TakeOfCall
    priority_of: Callable[[tuple[Any, ...], Mapping[str, Any]], float] | None
    """``None`` if all calls have the same priority."""
    limiter: Limiter

    def acquire(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Flow[None]:
        """Wait until the call may go; an override in words lets it pass unconditionally."""
        priority = 0.0 if self.priority_of is None else self.priority_of(args, kwargs)
        yield from self.limiter.admitted(self.take_of(args, kwargs), lambda take: self.waiter.wait(take, priority))


Wrapper: TypeAlias = Callable[[Function, CallWaiter], Function]


def wrapper_for(function: object) -> Wrapper:
    """The wrapper for a function of this kind; ``ConfigurationError`` if ``@pace`` cannot go on it."""
    if isinstance(function, (staticmethod, classmethod, property)):
        raise ConfigurationError(f"put @pace below @{type(function).__name__}, not above it")
    if isinstance(function, type) or not callable(function):
        raise ConfigurationError(f"@pace goes on a function, not on {function!r}")
    if _is(inspect.isgeneratorfunction, function) or _is(inspect.isasyncgenfunction, function):
        raise _refused_generator(f"cannot decorate a generator function: {function!r}")
    if _is(inspect.iscoroutinefunction, function):
        return _coroutine_function
    _require_nothing_hidden(function)
    is_of_generator = _is(inspect.isgeneratorfunction, inspect.unwrap(function))
    return _function_of_generator if is_of_generator else _plain_function


def _is(kind: Callable[[Any], bool], function: Function) -> bool:
    """Whether a function is of this kind, or an object whose ``__call__`` is."""
    return kind(function) or kind(getattr(function, "__call__", None))  # noqa: B004  # it is known to be callable


def _refused_generator(what: str) -> ConfigurationError:
    """The error for a generator, which runs between its values after its call: a slot would pace only its start."""
    return ConfigurationError(
        f"@pace {what}: put @pace on the function that it calls for each value, or book each value with "
        "Limiter.pace(key) and sleep for decision.delay"
    )


def _require_nothing_hidden(function: Function) -> None:
    """Refuse a function if another decorator hides that it is async, because a wait here would block the event loop."""
    innermost = inspect.unwrap(function)
    if inspect.iscoroutinefunction(innermost):
        raise ConfigurationError(
            f"{function!r} returns a coroutine without being async itself: put @pace below the other decorator, "
            "next to the def"
        )
    if _is(inspect.isasyncgenfunction, innermost):
        raise ConfigurationError(
            f"{function!r} is made of an async generator without being async itself, so that a wait would block the "
            "event loop: await a function under @pace inside it"
        )


def _coroutine_function(function: Function, waiter: CallWaiter) -> Function:
    acquire = waiter.acquire

    async def paced(*args: Any, **kwargs: Any) -> Any:
        await run_async(acquire(args, kwargs))
        return await function(*args, **kwargs)

    return paced


def _plain_function(function: Function, waiter: CallWaiter) -> Function:
    acquire = waiter.acquire

    def paced(*args: Any, **kwargs: Any) -> Any:
        run_sync(acquire(args, kwargs))
        return function(*args, **kwargs)

    return paced


def _function_of_generator(function: Function, waiter: CallWaiter) -> Function:
    """For a function around a generator function: it may exhaust the generator, or turn it into a context manager."""
    paced = _plain_function(function, waiter)

    def checked(*args: Any, **kwargs: Any) -> Any:
        result = paced(*args, **kwargs)
        if inspect.isgenerator(result):
            raise _refused_generator(f"goes on no function that returns a generator: {function!r}")
        return result

    return checked
