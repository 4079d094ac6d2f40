"""Who may see the page, and who changes limits there: functions of the program decide, and may fail."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from starlette.exceptions import HTTPException
from starlette.requests import Request

from ..errors import ConfigurationError
from ..inbound.functions.function_arguments import require_function
from ..logs import FailureLog
from ..overrides import checked_by

Allow: TypeAlias = Callable[[Request], bool | Awaitable[bool]]
"""Says whether the sender of a request may see the page and change limits; sync or async."""

By: TypeAlias = Callable[[Request], str | Awaitable[str | None] | None]
"""Returns the name that the history of changes shows for a request; sync or async."""

EXAMPLE = 'dashboard(store, allow=lambda request: request.session.get("role") == "admin")'


class Access:
    """Calls ``allow``. Raises ``ConfigurationError`` if it is not a function."""

    def __init__(self, allow: Allow) -> None:
        if not callable(allow) or isinstance(allow, type):
            raise ConfigurationError(
                f"allow must be a function of the request that says who may see the page, not {allow!r}: {EXAMPLE}"
            )
        self._allow: Allow = require_function("allow", allow, 1, EXAMPLE)
        self._log = FailureLog()

    async def permits(self, request: Request) -> bool:
        """Whether ``allow`` returns ``True``. A failure or a value that is not a bool is logged, and permits nothing.

        An ``HTTPException`` is raised, so that ``allow`` may ask for a password.
        """
        try:
            answer = self._allow(request)
            if inspect.isawaitable(answer):
                answer = await answer
            if not isinstance(answer, bool):
                raise TypeError(f"it must return True or False, not {type(answer).__name__}: {EXAMPLE}")
        except HTTPException:
            raise
        except Exception as error:  # noqa: BLE001  # a function of the program, which may raise whatever it likes
            self._log.report("allow of the dashboard failed, so nobody is let in", error)
            return False
        return answer


class Author:
    """Calls ``by``, if there is one. Raises ``ConfigurationError`` if it is not a function."""

    def __init__(self, by: By | None) -> None:
        if by is not None and not callable(by):
            raise ConfigurationError(
                f"by must be a function of the request, not {by!r}: by=lambda request: request.user.name"
            )
        self._by = by
        self._log = FailureLog()

    async def of(self, request: Request) -> str | None:
        """The name for the history. A failure is logged, and gives no name: it must not keep an admin from a change.

        An ``HTTPException`` is raised.
        """
        if self._by is None:
            return "page"
        try:
            name = self._by(request)
            if inspect.isawaitable(name):
                name = await name
            return checked_by(None if name is None else str(name))
        except HTTPException:
            raise
        except Exception as error:  # noqa: BLE001  # as above
            self._log.report("by of the dashboard failed, so the history names nobody", error)
            return None
