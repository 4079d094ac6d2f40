"""What ``@pace`` puts around each kind of function, so that it stays of its kind."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import aclosing
from typing import Any, TypeAlias

from ..decision import Take
from ..errors import ConfigurationError
from ..waiting import Turns, run_async, run_sync

Function: TypeAlias = Callable[..., Any]
TakeOfCall: TypeAlias = Callable[[tuple[Any, ...], Mapping[str, Any]], Take]
"""From the positional and the named arguments of a call to its take."""
Wrapper: TypeAlias = Callable[[Function, Turns, TakeOfCall], Function]


def wrapper_for(function: object) -> Wrapper:
    """The wrapper for the kind of function that it is; ``ConfigurationError`` for what cannot be paced as it is."""
    if isinstance(function, (staticmethod, classmethod, property)):
        raise ConfigurationError(f"put @pace below @{type(function).__name__}, not above it")
    if isinstance(function, type) or not callable(function):
        raise ConfigurationError(f"@pace goes on a function, not on {function!r}")
    if _is(inspect.iscoroutinefunction, function):
        return _coroutine_function
    if _is(inspect.isasyncgenfunction, function):
        return _async_generator_function
    if _is(inspect.isgeneratorfunction, function):
        return _generator_function
    _require_plain(function)
    return _plain_function


def _is(kind: Callable[[Any], bool], function: Function) -> bool:
    """Whether a function is of a kind, or an object that is called like one."""
    return kind(function) or kind(getattr(function, "__call__", None))  # noqa: B004  # it is known to be callable


def _require_plain(function: Function) -> None:
    """What another decorator made of a generator or a coroutine is paced when it is built, not when it runs."""
    inner = inspect.unwrap(function)
    if inner is function:
        return
    for kind in (inspect.iscoroutinefunction, inspect.isasyncgenfunction, inspect.isgeneratorfunction):
        if kind(inner):
            raise ConfigurationError(
                f"{function!r} only makes what will run later, so its calls cannot wait: put @pace below the other "
                "decorator (@contextmanager, @asynccontextmanager and the like), next to the def"
            )


def _coroutine_function(function: Function, turns: Turns, take_of: TakeOfCall) -> Function:
    async def paced(*args: Any, **kwargs: Any) -> Any:
        await run_async(turns.wait(take_of(args, kwargs)))
        return await function(*args, **kwargs)

    return paced


def _plain_function(function: Function, turns: Turns, take_of: TakeOfCall) -> Function:
    def paced(*args: Any, **kwargs: Any) -> Any:
        run_sync(turns.wait(take_of(args, kwargs)))
        return function(*args, **kwargs)

    return paced


def _generator_function(function: Function, turns: Turns, take_of: TakeOfCall) -> Function:
    """It waits when it is first asked for a value."""

    def paced(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        run_sync(turns.wait(take_of(args, kwargs)))
        return (yield from function(*args, **kwargs))

    return paced


def _async_generator_function(function: Function, turns: Turns, take_of: TakeOfCall) -> Function:
    """It waits when it is first asked for a value."""

    async def paced(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        await run_async(turns.wait(take_of(args, kwargs)))
        async with aclosing(function(*args, **kwargs)) as values:
            step = values.asend(None)
            while True:
                try:
                    value = await step
                except StopAsyncIteration:
                    return
                try:
                    step = values.asend((yield value))
                except GeneratorExit:
                    raise
                except BaseException as error:  # noqa: BLE001  # it is for the inner one to handle
                    step = values.athrow(error)

    return paced
