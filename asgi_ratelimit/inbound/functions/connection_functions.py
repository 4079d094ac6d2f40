"""Calls of functions of the connection."""

from __future__ import annotations

from typing import Any, TypeAlias

from starlette.requests import HTTPConnection, Request
from starlette.types import Scope

from ...keys.program_functions import called

Results: TypeAlias = dict[int, Any]
"""The results of functions for one request, by the identity of the function: each is called once."""


def connection_of(scope: Scope) -> HTTPConnection:
    """The argument of these functions: a ``Request`` without its body, or the connection of a handshake."""
    return Request(scope) if scope["type"] == "http" else HTTPConnection(scope)


async def called_once(function: Any, connection: HTTPConnection, results: Results) -> Any:
    """The result of a function of the connection, which is called once for each request."""
    identity = id(function)
    if identity not in results:
        results[identity] = await called(function, connection)
    return results[identity]
