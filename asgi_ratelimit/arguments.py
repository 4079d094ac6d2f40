"""Calls whose arguments do not fit: the right use is in the error, and costs nothing where they do fit."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from difflib import get_close_matches
from functools import wraps
from typing import Any, TypeVar, cast

from .errors import ConfigurationError

F = TypeVar("F", bound=Callable[..., Any])

_UNKNOWN = re.compile(r"unexpected keyword argument '(\w+)'$")


def shows_use(use: str, **instead: str) -> Callable[[F], F]:
    """Raise ``ConfigurationError``, which shows the right use, if the arguments do not fit what is decorated.

    It decorates functions, constructors, and classes whose constructor is generated. ``instead`` says what to use for
    keywords that somebody may expect.
    """

    def checks(made: F) -> F:
        if isinstance(made, type):
            made.__init__ = checks(made.__init__)  # type: ignore[misc]  # that of a dataclass
            return made

        @wraps(made)
        def checked(*args: Any, **kwargs: Any) -> Any:
            try:
                return made(*args, **kwargs)
            except TypeError as error:
                if error.__traceback__ is not None and error.__traceback__.tb_next is None:  # nothing was called
                    raise ConfigurationError(f"{error}{_meant(str(error), made, instead)}: {use}") from None
                raise

        return cast("F", checked)

    return checks


def _meant(problem: str, made: Callable[..., Any], instead: dict[str, str]) -> str:
    """What an unknown keyword may mean: a hint, or nothing."""
    unknown = _UNKNOWN.search(problem)
    if unknown is None:
        return ""
    if unknown[1] in instead:
        return f", {instead[unknown[1]]}"
    near = get_close_matches(unknown[1], inspect.signature(made).parameters, 1)
    return f", did you mean {near[0]!r}?" if near else ""


def used_as(use: str) -> Callable[[F], F]:
    """Put the right use of a method into the error that Python raises for a call with other arguments.

    A check of the arguments would cost each call of what is called often.
    """

    def rename(method: F) -> F:
        method.__qualname__ = use
        return method

    return rename
