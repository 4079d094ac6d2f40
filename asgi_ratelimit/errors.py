"""Every exception that the package raises, in one tree; and checks of arguments, whose errors show the right use.

::

    RateLimitError
    ├── QuotaError(ValueError)           a quota, or its text, is not valid
    ├── ConfigurationError(ValueError)   arguments that do not fit together, found at start-up
    ├── PaceTimeout(TimeoutError)        the next free slot is further away than the caller waits
    └── StoreError                       the store could not answer
        ├── StoreTimeout                 ... within its deadline
        └── StoreUnavailable             ... because it cannot be reached

``PaceTimeout`` is defined in ``waiting.waiter``, because it carries a ``Decision``.
A cost that is not a sensible number is a plain ``ValueError``.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Coroutine, Generator
from functools import wraps
from numbers import Real
from typing import Any, ParamSpec, TypeVar, cast

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


class RateLimitError(Exception):
    """The root: catch it to catch every exception that this package defines."""


class QuotaError(RateLimitError, ValueError):
    """Raised when a quota is built, or parsed from text, with numbers or words that are not valid."""


class ConfigurationError(RateLimitError, ValueError):
    """Raised at start-up by limiters, stores and middleware whose arguments do not fit together."""


class StoreError(RateLimitError):
    """Raised by a store that received an error, or an answer that makes no sense."""


class StoreTimeout(StoreError):
    """Raised by a store that had no answer within its deadline; the take may or may not have been charged."""


class StoreUnavailable(StoreError):
    """Raised by a store that cannot be reached: refused, closed, loading, or out of connections."""


def to_install(extra: str) -> str:
    """How to install what an optional part of the package needs."""
    return f'pip install "asgi-ratelimit-pacer[{extra}]", or, in a checkout, pip install ".[{extra}]"'


def shows_use(use: str) -> Callable[[F], F]:
    """Raise ``ConfigurationError``, which shows the right use, if the arguments do not fit what is decorated.

    It decorates functions, also asynchronous ones, constructors, and classes whose constructor is generated.
    """

    def checks(target: F) -> F:
        if isinstance(target, type):
            target.__init__ = checks(target.__init__)  # type: ignore[misc]  # that of a dataclass
            return target

        @wraps(target)
        def checked(*args: Any, **kwargs: Any) -> Any:
            try:
                return target(*args, **kwargs)
            except TypeError as error:
                if error.__traceback__ is not None and error.__traceback__.tb_next is None:  # nothing was called
                    raise ConfigurationError(f"{error}: {use}") from None
                raise

        return cast("F", checked)

    return checks


@Coroutine.register
class Unawaited:
    """The coroutine of a call that was not awaited yet. It refuses to be a boolean: it would be true for everybody."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._coroutine = coroutine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._coroutine, name)

    def __await__(self) -> Generator[Any, None, Any]:
        return self._coroutine.__await__()

    def __bool__(self) -> bool:
        if sys._getframe(1).f_globals.get("__name__") == "asyncio.base_tasks":  # the repr of a task asks, from 3.12 on
            return True
        owner, _, name = self.__qualname__.partition(".")
        use = f"limits(request).{name}(3)" if owner == "Limits" else f"limiter.{name}(key)"
        raise TypeError(f"{name} lacks its await, so everybody passes: if await {use}")


def must_await(method: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """The same method, whose result refuses to be a boolean as long as nobody awaits it.

    It is marked as what it is to its callers, a coroutine function: a framework would run any other in a thread, where
    nobody awaits the result.
    """
    marked: Any = wraps(method)(lambda *args, **kwargs: Unawaited(method(*args, **kwargs)))
    if sys.version_info >= (3, 12):
        inspect.markcoroutinefunction(marked)
    elif sys.implementation.name == "cpython":  # 3.11 has no mark, but a flag, which calls do not heed there
        marked.__code__ = marked.__code__.replace(co_flags=marked.__code__.co_flags | inspect.CO_COROUTINE)
    return cast("Callable[P, Coroutine[Any, Any, T]]", marked)


def checked_flag(name: str, flag: bool) -> bool:
    """``flag``, if it is ``True`` or ``False``; ``ConfigurationError`` otherwise, as for ``"false"``, which is true."""
    if flag is True or flag is False:
        return flag
    raise ConfigurationError(f"{name} must be True or False, not {flag!r}: {name}=True")


def require_number(what: str, number: Any, least: float, most: float, use: str, kind: Any = Real) -> Any:
    """``number`` if it is one of this kind from ``least`` to ``most``.

    Raises ``ConfigurationError``, which says ``what`` is right and shows a right ``use``, otherwise.
    """
    if isinstance(number, kind) and not isinstance(number, bool) and least <= number <= most:  # false for NaN, too
        return number
    raise ConfigurationError(f"{what}, not {number!r}: {use}")


def checked_name(name: str) -> str:
    """``name`` if it is a text and not empty; ``ConfigurationError`` otherwise."""
    if isinstance(name, str) and name:
        return name
    raise ConfigurationError(f'the name of a limiter must be a text and not empty, not {name!r}: name="api"')
