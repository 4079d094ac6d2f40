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

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

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


def checked_flag(name: str, flag: bool) -> bool:
    """``flag``, if it is ``True`` or ``False``; ``ConfigurationError`` otherwise, as for ``"false"``, which is true."""
    if flag is True or flag is False:
        return flag
    raise ConfigurationError(f"{name} must be True or False, not {flag!r}: {name}=True")


def checked_name(name: str) -> str:
    """``name`` if it is a text and not empty; ``ConfigurationError`` otherwise."""
    if isinstance(name, str) and name:
        return name
    raise ConfigurationError(f'the name of a limiter must be a text and not empty, not {name!r}: name="api"')
