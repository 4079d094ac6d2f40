"""Calls of functions of the connection, and reports of those that fail."""

from __future__ import annotations

from typing import Any, TypeAlias

from starlette.requests import HTTPConnection, Request
from starlette.types import Scope

from ...counts.process_counts import Counts
from ...hooks import Failure, Hooks
from ...keys.base import called
from ...logs import FailureLog

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


_NO_HOOKS = Hooks(())


class Failures:
    """The failures of all functions of one middleware, or of dependencies without one."""

    def __init__(self, hooks: Hooks = _NO_HOOKS, counts: Counts | None = None) -> None:
        self._hooks = hooks
        self._counts = counts
        self._log = FailureLog()

    def report(self, name: str, failed: str, outcome: str, error: Exception) -> None:
        """Report that the function ``failed``, an argument such as ``"key"``, of the limit ``name`` has failed."""
        self._log.report(f"the {failed} function of {name!r} failed, {outcome}", error)
        if self._counts is not None:
            self._counts.count_failure(name)
        self._hooks.failed(Failure(name, failed, error))
