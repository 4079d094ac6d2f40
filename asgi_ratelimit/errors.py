"""Every exception that the package raises, in one tree.

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
