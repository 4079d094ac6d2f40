"""How long a request may wait, and how many may at a time: the arguments, checked."""

from __future__ import annotations

import math
from typing import Final

from ...errors import ConfigurationError
from ...stores.event_loops import running_loop

MAX_WAITING: Final = 1000
"""How many requests may wait at a time, unless somebody says otherwise."""


def checked_max_delay(seconds: float) -> float:
    """Seconds from 0 up, but not for ever; ``ConfigurationError`` otherwise."""
    is_number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    if is_number and 0 <= seconds < math.inf:  # false for NaN, too
        return seconds
    raise ConfigurationError(f"max_delay must be seconds from 0 up, and finite, not {seconds!r}: max_delay=2.0")


def require_asyncio() -> None:
    """Raise ``ConfigurationError`` where requests cannot wait, because no event loop of asyncio runs."""
    running_loop("a max_delay", "leave it at 0.0, which refuses at once")


def checked_max_waiting(count: int) -> int:
    """A number of requests, at least 1; ``ConfigurationError`` otherwise."""
    if isinstance(count, int) and not isinstance(count, bool) and count >= 1:
        return count
    raise ConfigurationError(
        f"max_waiting must be a whole number of requests, at least 1, not {count!r}: max_waiting=1000, "
        "or max_delay=0.0 where none waits"
    )
