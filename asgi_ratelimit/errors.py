"""Every exception that the package raises, in one tree.

::

    RateLimitError
    ├── QuotaError(ValueError)           a quota, or the text of one, that cannot be
    ├── ConfigurationError(ValueError)   parts that do not fit together, found at start-up
    ├── PaceTimeout(TimeoutError)        the next free slot lies further away than the caller waits
    └── StoreError                       the store could not answer
        ├── StoreTimeout                 ... within its deadline
        └── StoreUnavailable             ... because there is no way to it

A cost or a waiting time that is not a sensible number is a plain ``ValueError``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .decision import Decision


class RateLimitError(Exception):
    """The root: catch it to catch everything that this package raises by itself."""


class QuotaError(RateLimitError, ValueError):
    """Raised when a quota is built, or parsed from text, with numbers or words that cannot be."""


class ConfigurationError(RateLimitError, ValueError):
    """Raised at start-up by limiters, stores and middleware whose arguments do not fit together."""


class PaceTimeout(RateLimitError, TimeoutError):
    """Raised by the pacing side when a slot lies further away than ``max_delay``; nothing is booked."""

    def __init__(self, message: str, decision: Decision) -> None:
        super().__init__(message)
        self.decision = decision


class StoreError(RateLimitError):
    """Raised by a store that answered with an error, or with something that makes no sense."""


class StoreTimeout(StoreError):
    """Raised by a store that did not answer within its deadline; whether it charged is not known."""


class StoreUnavailable(StoreError):
    """Raised by a store that cannot be reached: refused, closed, loading, or out of connections."""
