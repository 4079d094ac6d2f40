"""What a refused request is told: problem details (RFC 9457) of the types that the IETF draft names."""

from __future__ import annotations

import json
from collections.abc import Awaitable
from functools import lru_cache

from starlette.types import Message, Scope, Send

from ..decision import Decision
from ..headers import Header, render, retry_after

_TYPES = "https://iana.org/assignments/http-problem-types#"


async def refuse(decision: Decision, scope: Scope, send: Send) -> None:
    """Answer a refused HTTP request or WebSocket handshake.

    429, or 503 where no quota refused but the store was out. A handshake is closed where the server cannot answer it.
    """
    if scope["type"] == "http":
        await _answer(decision, send, "http.response")
    elif "websocket.http.response" in (scope.get("extensions") or ()):
        await _answer(decision, send, "websocket.http.response")
    else:
        await send({"type": "websocket.close", "code": 1008, "reason": "rate limit exceeded"})


async def _answer(decision: Decision, send: Send, kind: str) -> None:
    violated = tuple([state.quota.name for state in decision.states if not state.allowed])
    status, body, headers = _problem(violated)
    headers = [*headers, *retry_after(decision), *(render(decision) if violated else ())]
    await send({"type": f"{kind}.start", "status": status, "headers": headers})
    await send({"type": f"{kind}.body", "body": body})


@lru_cache(maxsize=4096)
def _problem(violated: tuple[str, ...]) -> tuple[int, bytes, list[Header]]:
    """Status, body and headers of the problem details for the quotas that refused, or for the want of a store."""
    status, problem = (429, _quota_exceeded(violated)) if violated else (503, _REDUCED_CAPACITY)
    body = json.dumps({**problem, "status": status}).encode()
    headers = [
        (b"content-type", b"application/problem+json"),
        (b"content-length", b"%d" % len(body)),
        (b"cache-control", b"no-store"),
    ]
    return status, body, headers


def _quota_exceeded(violated: tuple[str, ...]) -> dict[str, object]:
    return {
        "type": _TYPES + "quota-exceeded",
        "title": "Request cannot be satisfied as assigned quota has been exceeded",
        "violated-policies": violated,
    }


_REDUCED_CAPACITY: dict[str, object] = {
    "type": _TYPES + "temporary-reduced-capacity",
    "title": "Request cannot be satisfied due to temporary server capacity constraints",
}


_STARTS = frozenset({"http.response.start", "websocket.accept", "websocket.http.response.start"})


class HeaderSender:
    """A ``send`` that adds headers to the start of the answer, and passes everything else through as it is."""

    __slots__ = ("_headers", "_send", "started")

    def __init__(self, send: Send, headers: list[Header]) -> None:
        self._send = send
        self._headers = headers
        self.started = False

    def __call__(self, message: Message) -> Awaitable[None]:
        if message["type"] in _STARTS:
            self.started = True
            message = {**message, "headers": [*message.get("headers", ()), *self._headers]}
        return self._send(message)
