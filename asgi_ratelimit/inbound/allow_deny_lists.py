"""The lists ``allow`` and ``deny`` of a middleware: clients that are never limited, and clients that never get in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from starlette.types import Scope

from ..decision import OnError
from ..keys.base import called
from ..keys.client_ip import DENIES
from .refusals import AccessDenied, LimitUnavailable
from .user_functions import Failures, connection_of, require_function

# Whether a connection is on a list, sync or async.
ListFunction: TypeAlias = Callable[[Any], "bool | Awaitable[bool]"]


class Lists:
    """Clients that are never limited, and clients that are always refused; ``deny`` is evaluated first.

    Raises ``ConfigurationError`` for a list that is not a function. A function that fails, or returns anything but
    ``True``, ``False`` or ``None``, is reported, and its list counts as empty; a failing ``deny`` refuses everybody if
    ``on_error`` is ``"deny"``.
    """

    def __init__(self, allow: ListFunction | None, deny: ListFunction | None, failures: Failures) -> None:
        for name, test in (("allow", allow), ("deny", deny)):
            if test is not None:
                require_function(name, test, 1, f'{name}=client_ip().within("10.0.0.0/8")')
        self._allow, self._deny, self._failures = allow, deny, failures

    async def exempts(self, scope: Scope, name: str, on_error: OnError | None) -> bool:
        """Whether a request is exempt; ``name`` and ``on_error`` are those of the middleware.

        Raises ``AccessDenied`` for a request that is always refused. May raise ``LimitUnavailable`` if ``deny`` fails.
        """
        if self._deny is not None and await self._is_on("deny", self._deny, scope, name, on_error == "deny"):
            raise AccessDenied
        return self._allow is not None and await self._is_on("allow", self._allow, scope, name, False)

    async def _is_on(self, argument: str, function: ListFunction, scope: Scope, name: str, refuses: bool) -> bool:
        """Whether a request is on the list that the middleware ``name`` has as this argument."""
        try:
            scope[DENIES] = argument == "deny"  # for `within`, also where the function of the program calls it
            answer = await called(function, connection_of(scope))
            if answer is None or isinstance(answer, bool):
                return bool(answer)
            right = f"{argument}=lambda request: request.headers.get('x-client') in CLIENTS"
            kind = type(answer).__name__  # not the answer, which may be a credential
            raise TypeError(f"{argument} returns True or False, not {kind}: {right}")
        except Exception as error:  # a user's function may raise anything
            self._failures.report(name, argument, "refused" if refuses else "the list counts as empty", error)
            if refuses:
                raise LimitUnavailable from error
            return False
        finally:
            scope.pop(DENIES, None)
