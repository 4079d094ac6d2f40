"""Calls of functions of the program, sync or async."""

from __future__ import annotations

import inspect
from typing import Any, TypeAlias

from starlette.requests import HTTPConnection, Request
from starlette.types import Scope

from ...clock import monotonic_us
from ...logs import warn_once

BLOCKING_US = 5_000
"""Microseconds on the event loop from which on a function without ``async`` is warned of."""

Results: TypeAlias = dict[int, Any]
"""What functions have returned for one request, by their identity: each is called once."""


def connection_of(scope: Scope) -> HTTPConnection:
    """What functions are called with: a ``Request`` without its body, or the connection of a handshake."""
    return Request(scope) if scope["type"] == "http" else HTTPConnection(scope)


async def called(function: Any, *arguments: object) -> Any:
    """What a function returns, sync or async."""
    started_us = monotonic_us()
    result = function(*arguments)
    if inspect.isawaitable(result):
        return await result
    if monotonic_us() - started_us > BLOCKING_US:
        _warn_of_blocking(function)
    return result


async def called_once(function: Any, connection: HTTPConnection, results: Results) -> Any:
    """What a function of the connection returns; it is called once for each request."""
    identity = id(function)
    if identity not in results:
        results[identity] = await called(function, connection)
    return results[identity]


def _warn_of_blocking(function: object) -> None:
    name = getattr(function, "__qualname__", type(function).__qualname__)
    module = getattr(function, "__module__", type(function).__module__)
    warn_once(
        "a-function-that-blocks",
        f"the function {module}.{name} took more than {BLOCKING_US // 1000} ms on the event loop, while all other "
        "requests waited: make it async, or return what is in memory",
    )
