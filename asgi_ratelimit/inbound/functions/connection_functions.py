"""Calls of functions of the connection."""

from __future__ import annotations

from typing import Any, TypeAlias

from starlette.requests import HTTPConnection, Request
from starlette.types import Scope

from ...keys.program_functions import called

Results: TypeAlias = dict[int, Any]
"""What functions have returned for one request, by their identity: each is called once."""


def connection_of(scope: Scope) -> HTTPConnection:
    """What functions are called with: a ``Request`` without its body, or the connection of a handshake."""
    return Request(scope) if scope["type"] == "http" else HTTPConnection(scope)


async def called_once(function: Any, connection: HTTPConnection, results: Results) -> Any:
    """What a function of the connection returns; it is called once for each request."""
    identity = id(function)
    if identity not in results:
        results[identity] = await called(function, connection)
    return results[identity]
