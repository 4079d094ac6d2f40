"""Calls of functions of the program, sync or async."""

from __future__ import annotations

from typing import Any

from ..clock import monotonic_ns
from ..logs import warn_once

BLOCKING_NS = 5_000_000
"""A function without ``async`` that takes this many nanoseconds of the event loop causes a warning."""


async def called(function: Any, *arguments: object) -> Any:
    """The result of a function, sync or async."""
    started_ns = monotonic_ns()
    result = function(*arguments)
    if hasattr(result, "__await__"):
        return await result
    if monotonic_ns() - started_ns > BLOCKING_NS:
        _warn_of_blocking(function)
    return result


def _warn_of_blocking(function: object) -> None:
    name = getattr(function, "__qualname__", type(function).__qualname__)
    module = getattr(function, "__module__", type(function).__module__)
    warn_once(
        "a-function-that-blocks",
        f"the function {module}.{name} took more than {BLOCKING_NS // 1_000_000} ms on the event loop, while all other "
        "requests waited: make it async, or return what is in memory",
    )
