"""Lists: clients that are never limited, and clients that are always refused."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, cast

from starlette.types import Scope

from ...decision import OnError
from ...errors import ConfigurationError
from ...keys.base import PathKey, ScopeKey, ScopeTest, called
from ..functions.connection_functions import Failures, connection_of
from ..functions.function_arguments import require_function
from ..refusals import AccessDenied, LimitUnavailable

ListFunction: TypeAlias = Callable[[Any], "bool | Awaitable[bool]"]
"""Whether a connection is on a list, sync or async."""


class Lists:
    """Two lists; ``deny`` is evaluated first. Raises ``ConfigurationError`` for one that is not a function.

    A function that fails, or returns anything but ``True``, ``False`` or ``None``, is reported, and its list counts as
    empty; a failing ``deny`` refuses everybody if ``on_error`` is ``"deny"``.
    """

    def __init__(self, allow: ListFunction | None, deny: ListFunction | None, failures: Failures) -> None:
        self._allow = _checked("allow", allow)
        self._deny = _checked("deny", deny)
        self._failures = failures

    async def exempts(self, scope: Scope, name: str, on_error: OnError | None) -> bool:
        """Whether a request is exempt; the middleware has this name, and this ``on_error``.

        Raises ``AccessDenied`` for a request that is always refused. May raise ``LimitUnavailable`` if ``deny`` fails.
        """
        if self._deny is not None and await self._is_on(self._deny, ("deny", name), scope, refuses=on_error == "deny"):
            raise AccessDenied
        return self._allow is not None and await self._is_on(self._allow, ("allow", name), scope)

    async def _is_on(
        self, function: ListFunction, names: tuple[str, str], scope: Scope, *, refuses: bool = False
    ) -> bool:
        """Whether a request is on a list; ``names`` are those of the list and of the middleware."""
        argument, name = names
        try:
            if isinstance(function, ScopeTest):
                return function.of_host(scope) if argument == "deny" else function.of(scope)
            return _checked_answer(argument, await called(function, connection_of(scope)))
        except Exception as error:  # a user's function may raise anything
            self._failures.report(name, argument, "refused" if refuses else "the list counts as empty", error)
            if refuses:
                raise LimitUnavailable from error
            return False


def _checked(name: str, test: ListFunction | None) -> ListFunction | None:
    if test is None or isinstance(test, ScopeTest):
        return test
    right = f'{name}=client_ip().within("10.0.0.0/8")'
    if isinstance(getattr(test, "__self__", None), ScopeKey):
        raise ConfigurationError(f"{name}={test!r} is a method that lacks its call: {right}")
    if isinstance(test, (ScopeKey, PathKey)):  # its text is true, whoever the client is
        raise ConfigurationError(
            f"{name}={test!r} is a key, not a list: {right}, or a function of the connection that returns True or False"
        )
    return cast("ListFunction", require_function(name, test, 1, right))


def _checked_answer(name: str, answer: object) -> bool:
    """The answer of a list's function; ``TypeError`` for anything but a bool or ``None``, such as a credential."""
    if answer is True or answer is False or answer is None:
        return answer is True
    raise TypeError(
        f"{name} returns True or False, not {type(answer).__name__}: "
        f"{name}=lambda request: request.headers.get('x-client') in CLIENTS"
    )
