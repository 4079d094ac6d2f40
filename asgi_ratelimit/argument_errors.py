"""Errors for calls whose arguments do not fit: they show the right use, and cost nothing for calls that do fit."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from .clock import Clock
from .errors import ConfigurationError

F = TypeVar("F", bound=Callable[..., Any])


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


def checked_flag(name: str, flag: bool) -> bool:
    """``flag``, if it is ``True`` or ``False``; ``ConfigurationError`` otherwise, as for ``"false"``, which is true."""
    if flag is True or flag is False:
        return flag
    raise ConfigurationError(f"{name} must be True or False, not {flag!r}: {name}=True")


def checked_clock(clock: Clock | None, use: str) -> Clock | None:
    """``clock``, if it is one or ``None``; ``ConfigurationError`` otherwise, which shows ``use``, a right call."""
    if clock is None or (callable(getattr(clock, "now_us", None)) and not isinstance(clock, type)):
        return clock
    raise ConfigurationError(f"clock must have a method now_us() that returns microseconds, unlike {clock!r}: {use}")


def used_as(use: str) -> Callable[[F], F]:
    """Put the right use of a method into the error that Python raises for a call with other arguments.

    For a method that is called often, a check of the arguments would slow down each call.
    """

    def rename(method: F) -> F:
        method.__qualname__ = use
        return method

    return rename
