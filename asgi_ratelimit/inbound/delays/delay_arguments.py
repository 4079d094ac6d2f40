"""Checks the arguments that say how long a request may wait, and how many requests may wait at a time."""

from __future__ import annotations

from asyncio import AbstractEventLoop
from numbers import Integral, Real
from typing import Final

from ...errors import ConfigurationError
from ...logs import warn_once
from ...quotas import MAX_PERIOD
from ...stores.event_loops import running_loop

LONGEST_USUAL: Final = 600.0
"""Seconds; a longer wait is probably meant in milliseconds."""

MAX_WAITING: Final = 1000
"""How many requests may wait at a time by default."""


def checked_max_delay(seconds: float) -> float:
    """Seconds from 0 to 400 days; ``ConfigurationError`` otherwise."""
    is_number = isinstance(seconds, (int, float, Real)) and not isinstance(seconds, bool)
    if is_number and 0 <= seconds <= MAX_PERIOD:  # false for NaN, too
        if seconds >= LONGEST_USUAL:
            warn_once(
                "a-time-in-milliseconds",
                f"max_delay={seconds!r} is in seconds, and few clients wait that long: max_delay=2.0",
            )
        return float(seconds)
    raise ConfigurationError(f"max_delay must be seconds from 0 to 400 days, not {seconds!r}: max_delay=2.0")


def require_asyncio() -> None:
    """Raise ``ConfigurationError`` if requests cannot wait because no event loop of asyncio runs."""
    running_loop("a max_delay", "leave it at 0.0, which refuses at once")


def loop_for_messages() -> AbstractEventLoop:
    """The event loop on which messages book slots in a remote store; ``ConfigurationError`` without asyncio."""
    return running_loop("messages= over a store that is not in this process", 'use store="memory://"')


def checked_max_waiting(count: int) -> int:
    """A number of requests, at least 1; ``ConfigurationError`` otherwise."""
    if isinstance(count, (int, Integral)) and not isinstance(count, bool) and count >= 1:
        return int(count)
    raise ConfigurationError(
        f"max_waiting must be a whole number of requests, at least 1, not {count!r}: max_waiting=1000, "
        "or max_delay=0.0 where none waits"
    )
