"""Lists: clients that are never limited, and clients that are always refused."""

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
from ..answers.responses import AccessDenied, LimitUnavailable

Test: TypeAlias = Callable[[HTTPConnection], "bool | Awaitable[bool]"]
"""Whether a connection is on a list, sync or async."""

logger = logging.getLogger("asgi_ratelimit")


class Lists:
    """Two lists; ``deny`` is evaluated first. Raises ``ConfigurationError`` for one that is no function.

    A function that fails is logged once, and its list counts as empty; a failing ``deny`` refuses everybody if
    ``on_error`` is ``"deny"``.
    """

    def __init__(self, allow: Test | None, deny: Test | None, on_error: OnError | None) -> None:
        self._allow = _checked("allow", allow)
        self._deny = _checked("deny", deny)
        self._on_error = on_error
        self._failed: set[str] = set()

    async def allow(self, scope: Scope) -> bool:
        """Whether a request is exempt.

        Raises ``AccessDenied`` for one that is always refused, ``LimitUnavailable`` where ``deny`` has failed.
        """
        if self._deny is not None and await self._is_on(self._deny, "deny", scope):
            raise AccessDenied
        return self._allow is not None and await self._is_on(self._allow, "allow", scope)

    async def _is_on(self, test: Test, name: str, scope: Scope) -> bool:
        try:
            if isinstance(test, ScopeTest):
                return test.of_host(scope) if name == "deny" else test.of(scope)
            answer = test(HTTPConnection(scope))
            return bool(await answer if inspect.isawaitable(answer) else answer)
        except Exception as error:  # a user's function may raise anything
            self._log_once(name, error)
            if name == "deny" and self._on_error == "deny":
                raise LimitUnavailable from error
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
