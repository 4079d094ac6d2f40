"""Answers to refused requests: problem details (RFC 9457) of the types that the IETF draft names, or the program's own.

And the exceptions that refuse a request without a decision, and the description of the answers for OpenAPI.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from enum import Enum
from functools import lru_cache
from typing import Any, Final, TypeAlias, cast

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..decision import Decision
from ..headers.header_rendering import Header
from ..keys.base import called
from .user_functions import connection_of, require_function

OwnAnswer: TypeAlias = ASGIApp | Mapping[str, Any] | list[Any] | None

# The answer to a refused connection: a response, a dict or list for JSON with 429, or ``None`` for the usual one.
OnLimited: TypeAlias = Callable[[Any, Decision], "OwnAnswer | Awaitable[OwnAnswer]"]

AppArguments: TypeAlias = tuple[Scope, Receive, Send]  # the arguments of an ASGI app

# The lowest status of an answer; a message with a status of 1xx only announces that the answer will come
FINAL: Final = 200

# The types of messages that start an answer
STARTS: Final = frozenset({"http.response.start", "websocket.accept", "websocket.http.response.start"})

# The types of messages with a part of a body, or with a file, which the server reads by itself
BODIES: Final = frozenset({"http.response.body", "websocket.http.response.body"})
FILES: Final = frozenset({"http.response.pathsend", "http.response.zerocopysend"})

RETRY_SOON: Final[Header] = (b"retry-after", b"1")  # for a 503: nobody knows when the function will work again


async def own_answer(on_limited: OnLimited, scope: Scope, decision: Decision) -> ASGIApp | None:
    """The program's answer to a refusal, if it has one; ``TypeError`` for anything that is not an answer."""
    answer = await called(on_limited, connection_of(scope), decision) if _can_answer(scope) else None
    if answer is None or (callable(answer) and not isinstance(answer, type)):  # a class lacks its call
        return cast("ASGIApp | None", answer)
    if isinstance(answer, (Mapping, list)):
        return JSONResponse(answer, 429)
    raise TypeError(f"on_limited returns a response, a dict or None, not {answer!r}: JSONResponse({{...}}, 429)")


def checked_on_limited(on_limited: OnLimited | None) -> OnLimited | None:
    """A function that answers refused requests, or ``None``; ``ConfigurationError`` for anything else."""
    if on_limited is None:
        return None
    return cast("OnLimited", require_function("on_limited", on_limited, 2, "on_limited=lambda request, decision: ..."))


def refused_by(decision: Decision) -> str | None:
    """The name of the rule that refused with the longest wait, if there is one."""
    pairs = [pair for pair in zip(decision.states, decision.charges) if not pair[0].allowed]
    return max(pairs, key=lambda pair: pair[0].retry_after)[1].name if pairs else None


def _can_answer(scope: Scope) -> bool:
    return scope["type"] == "http" or "websocket.http.response" in (scope.get("extensions") or ())


def ends_answer(message: Message) -> bool:
    """Whether this message is the last one of an answer."""
    kind = message["type"]
    return kind == "websocket.close" or ((kind in BODIES or kind in FILES) and not message.get("more_body", False))


_BUSY = "Request cannot be satisfied due to temporary server capacity constraints"
_ABNORMAL = "Request not satisfied due to detection of abnormal request pattern"


class Problem(Enum):
    """A kind of problem details: its status, type and title."""

    QUOTA_EXCEEDED = 429, "quota-exceeded", "Request cannot be satisfied as assigned quota has been exceeded"
    ABNORMAL_USAGE = 429, "abnormal-usage-detected", _ABNORMAL
    UNAVAILABLE = 503, "temporary-reduced-capacity", _BUSY


async def send_problem(
    kind: Problem, more: list[Header], scope: Scope, send: Send, violated: tuple[str, ...] = ()
) -> None:
    """Send problem details of this kind, or close a handshake that the server cannot answer."""
    status, body, headers = _problem(kind, violated)
    if not _can_answer(scope):
        code, reason = (1008, "rate limit exceeded") if status == 429 else (1013, "rate limit unavailable")
        await send({"type": "websocket.close", "code": code, "reason": reason})
        return
    response = "http.response" if scope["type"] == "http" else "websocket.http.response"
    await send({"type": f"{response}.start", "status": status, "headers": [*headers, *more]})
    await send({"type": f"{response}.body", "body": body})


@lru_cache(maxsize=4096)
def _problem(kind: Problem, violated: tuple[str, ...]) -> tuple[int, bytes, list[Header]]:
    """Status, body and headers of problem details; ``violated`` are the policies that refused."""
    status, name, title = kind.value
    policies = {"violated-policies": violated} if violated else {}
    problem = f"https://iana.org/assignments/http-problem-types#{name}"
    body = json.dumps({"type": problem, "title": title, **policies, "status": status}).encode()
    content_type, length = (b"content-type", b"application/problem+json"), (b"content-length", b"%d" % len(body))
    return status, body, [content_type, length, (b"cache-control", b"no-store")]


class AccessDenied(Exception):
    """Raised for a client on the list of those that never get in: 429, without a time to come back."""

    problem: tuple[Problem, list[Header]] = Problem.ABNORMAL_USAGE, []


class LimitUnavailable(Exception):
    """Raised if a function failed, and its rule then lets nobody pass: 503."""

    problem: tuple[Problem, list[Header]] = Problem.UNAVAILABLE, [RETRY_SOON]


def limited_responses() -> dict[int | str, dict[str, Any]]:
    """The answers of a limited route for OpenAPI: pass ``responses=limited_responses()`` to a route, router or app."""
    integer, text = {"type": "integer"}, {"type": "string"}
    properties = {"type": {**text, "format": "uri"}, "title": text, "status": integer}
    listed = {"violated-policies": {"type": "array", "items": text}}
    problem = {"title": "Problem", "type": "object", "required": [*properties], "properties": properties | listed}
    headers = {
        "Retry-After": {"description": "Seconds to wait", "schema": integer},
        "RateLimit-Policy": {"description": "The quotas, by name", "schema": text},
        "RateLimit": {"description": "What is left of them", "schema": text},
    }
    content = {"application/problem+json": {"schema": problem}}
    description = "Too many requests: a quota has been exceeded"
    return {429: {"description": description, "headers": headers, "content": content}}
