"""Lists: who is never limited here, and who never gets in."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from starlette.requests import HTTPConnection
from starlette.types import Scope

from ...decision import OnError
from ...errors import ConfigurationError
from ...keys.base import ScopeTest
from ..lines import Denied

Test: TypeAlias = Callable[[HTTPConnection], "bool | Awaitable[bool]"]
"""Whether a connection is on a list, sync or async."""

logger = logging.getLogger("asgi_ratelimit")


class Barred(Exception):
    """Raised within the package for a request that is on the list of those who never get in."""


class Lists:
    """Two lists, of which that of ``deny`` goes first. Raises ``ConfigurationError`` for what is no function.

    A function that fails is logged once, and its list counts as empty; ``deny``, however, lets nobody in where
    ``on_error`` says so.
    """

    def __init__(self, allow: Test | None, deny: Test | None, on_error: OnError | None) -> None:
        self._allow = _checked("allow", allow)
        self._deny = _checked("deny", deny)
        self._on_error = on_error
        self._failed: set[str] = set()

    async def allow(self, scope: Scope) -> bool:
        """Whether a request is exempt. Raises ``Barred`` for one that never gets in, ``Denied`` if nobody knows."""
        if self._deny is not None and await self._is_on(self._deny, "deny", scope):
            raise Barred
        return self._allow is not None and await self._is_on(self._allow, "allow", scope)

    async def _is_on(self, test: Test, name: str, scope: Scope) -> bool:
        try:
            if isinstance(test, ScopeTest):
                return test.of(scope)
            answer = test(HTTPConnection(scope))
            return bool(await answer if inspect.isawaitable(answer) else answer)
        except Exception as error:  # a function of the user's, which may raise whatever it likes
            self._log_once(name, error)
            if name == "deny" and self._on_error == "deny":
                raise Denied from error
            return False

    def _log_once(self, name: str, error: Exception) -> None:
        if name not in self._failed:
            self._failed.add(name)
            logger.error("the function for %r failed: %r", name, error, exc_info=error)


def _checked(name: str, test: Test | None) -> Test | None:
    if test is None or callable(test):
        return test
    raise ConfigurationError(
        f'{name} is a function of the connection, not {test!r}: {name}=client_ip().within("10.0.0.0/8")'
    )
