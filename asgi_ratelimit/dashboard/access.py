"""Who may see the page: a function of the program says so, and whatever it does but say ``True``, nobody may."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from starlette.exceptions import HTTPException
from starlette.requests import Request

from ..errors import ConfigurationError
from ..logs import FailureLog

Allow: TypeAlias = Callable[[Request], bool | Awaitable[bool]]
"""Says whether the sender of a request may see the page and change limits; sync or async."""

EXAMPLE = 'dashboard(store, allow=lambda request: request.session.get("role") == "admin")'


class Access:
    """Asks ``allow``. Raises ``ConfigurationError`` if it is no function."""

    def __init__(self, allow: Allow) -> None:
        if not callable(allow) or isinstance(allow, type):
            raise ConfigurationError(
                f"allow must be a function of the request that says who may see the page, not {allow!r}: {EXAMPLE}"
            )
        self._allow = allow
        self._log = FailureLog()

    async def permits(self, request: Request) -> bool:
        """Whether ``allow`` returns ``True``. A failure is logged, and permits nothing; so is a value that is no bool.

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
