"""One request and its answer: what was decided, and how the answer says so."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

from starlette.types import Message, Scope, Send

from ..decision import Decision
from ..headers import Dialect

SCOPE_KEY: Final = "asgi_ratelimit"
"""Where the exchange of a request is found in its scope."""

_STARTS = frozenset({"http.response.start", "websocket.accept", "websocket.http.response.start"})


class Exchange:
    """A ``send`` that adds headers to the start of the answer, and passes everything else through as it is.

    The headers tell what was decided until then: limits further in add their decisions to those of the outermost.
    """

    __slots__ = ("_dialect", "_send", "decisions", "started")

    def __init__(self, send: Send, dialect: Dialect | None, decisions: list[Decision]) -> None:
        self._send = send
        self._dialect = dialect
        self.decisions = decisions
        self.started = False

    def __call__(self, message: Message) -> Awaitable[None]:
        if message["type"] in _STARTS:
            self.started = True
            if self._dialect is not None and self.decisions:
                message = {**message, "headers": [*message.get("headers", ()), *self._dialect(self.decisions)]}
        return self._send(message)


def exchange_of(scope: Scope) -> Exchange | None:
    """The exchange that the outermost limit of a request has begun, if there is one."""
    return scope.get(SCOPE_KEY)
