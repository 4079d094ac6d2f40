"""Functions of the program: how arguments that are functions are checked, called, and reported when they fail.

A wrong one raises an error at once that shows a right one. What a rule does instead of one that fails is in
``rules.py``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from inspect import Parameter, Signature, isroutine, signature
from typing import Any, TypeAlias, cast

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection, Request
from starlette.types import Message, Scope

from ..counts import Counts
from ..errors import ConfigurationError
from ..hooks import Failure, Hooks
from ..keys import KeyFunction
from ..keys.base import PathKey, ScopeKey, called, lacks_its_call
from ..logs import FailureLog
from ..quota_text import QuotaLike, as_quotas
from ..quotas import Quota

# The quota of a connection, ``None`` for no limit.
QuotaFunction: TypeAlias = Callable[[Any], "QuotaLike | Awaitable[QuotaLike | None] | None"]

# The cost of a connection in units, 0 for nothing.
CostFunction: TypeAlias = Callable[[Any], "float | Awaitable[float]"]

ActualCost: TypeAlias = float | Awaitable[float | None] | None

# The actual cost in units, from the status and headers of the answer and the bytes of its body; ``None``: as
# charged.
SettleFunction: TypeAlias = Callable[[int, Headers], ActualCost] | Callable[[int, Headers, int], ActualCost]

_KEY = 'key=client_ip(), key=lambda request: request.user.id, or RateLimit("5/minute", key=Depends(current_user_id))'
SETTLE_USE = "settle=lambda status, headers: 0 if status < 400 else 1"


# Arguments that are functions


def checked_key(key: Any) -> KeyFunction:
    """A function of the connection; ``ConfigurationError`` for anything else."""
    if isinstance(key, ScopeKey):
        return key
    for part in getattr(key, "parts", ()):
        checked_key(part)
    return cast("KeyFunction", require_function("key", key, 1, _KEY))


def checked_quotas(quota: QuotaLike | QuotaFunction | None) -> tuple[Quota, ...] | QuotaFunction:
    """The quotas, or a function of the connection; ``QuotaError`` or ``ConfigurationError`` for anything else."""
    if callable(quota):
        return cast("QuotaFunction", require_function("quota", quota, 1, 'quota=lambda request: "100/minute"'))
    return () if quota is None else as_quotas(quota)


def takes_bytes(settle: SettleFunction) -> bool:
    """Whether a settle function takes the bytes of an answer; ``ConfigurationError`` for anything else."""
    if callable(settle) and not isinstance(settle, type) and (takes(settle, 2) or takes(settle, 3)):
        return not takes(settle, 2)
    problem = f"settle is a function of the status and the headers, and perhaps of the bytes, not {settle!r}"
    raise ConfigurationError(f"{problem}: {SETTLE_USE}")


def require_function(what: str, function: Any, count: int, example: str) -> Any:
    """``function`` if it can be called with ``count`` arguments; ``ConfigurationError`` otherwise."""
    # The text of a key is no quota, nor a cost, and true for everybody; one of its methods lacks its call
    is_key = what != "key" and isinstance(getattr(function, "__self__", function), (ScopeKey, PathKey))
    is_wrong = is_key or not callable(function) or lacks_its_call(function) or _is_for_fastapi(function)
    if not is_wrong and takes(function, count):
        return function
    arguments = ("the connection", "the connection and the decision")[count - 1]
    parameters = ", ".join(signature_of(function).parameters)
    shown = f"{function.__name__}({parameters})" if isroutine(function) else repr(function)
    raise ConfigurationError(f"{what} is a function of {arguments}, not {shown}: {example}")


def takes(function: Callable[..., object], count: int) -> bool:
    """Whether a function can be called with ``count`` arguments; true if that cannot be determined."""
    try:
        signature_of(function).bind(*[None] * count)
    except TypeError:
        return False
    return True


_ANY = Signature([Parameter("args", Parameter.VAR_POSITIONAL), Parameter("kwargs", Parameter.VAR_KEYWORD)])


def signature_of(function: Callable[..., object]) -> Signature:
    """How a function itself is called, not one that it wraps; annotations are objects where they can be read.

    One that cannot be read takes anything.
    """
    for eval_str in (True, False):
        with suppress(Exception):  # an annotation as text is an expression of the program, and may raise anything
            return signature(function, follow_wrapped=False, eval_str=eval_str)
    return _ANY


def _is_for_fastapi(function: Any) -> bool:
    """Whether this is a security scheme, or has a parameter that only FastAPI fills: ``Header()``, or ``plan: str``.

    FastAPI is not imported here. A scheme returns whatever credential a client makes up. A class of the program's that
    inherits from one may have a call that checks what it gets.
    """
    call = function if isroutine(function) else type(function).__call__
    if str(getattr(call, "__module__", "")).startswith("fastapi.security."):
        return True
    parameters = [*signature_of(function).parameters.values()]
    first = parameters[0].annotation if parameters else Any
    if isinstance(first, type) and first.__module__ in ("builtins", "uuid") and not issubclass(Request, first):
        return True
    marks = [mark for each in parameters for mark in (each.default, *getattr(each.annotation, "__metadata__", ()))]
    return any(type(mark).__module__ == "fastapi.params" for mark in marks)


# Calls


# The results of functions for one request, by the identity of the function: each is called once
Results: TypeAlias = dict[int, Any]


def connection_of(scope: Scope) -> HTTPConnection:
    """The argument of these functions: a ``Request`` without its body, or the connection of a handshake."""
    return Request(scope, _no_body) if scope["type"] == "http" else HTTPConnection(scope)


async def _no_body() -> Message:
    raise RuntimeError(
        "a rule decides before the body comes, but a dependency reads it: RateLimit(key=Depends(account))"
    )


async def called_once(function: Any, connection: HTTPConnection, results: Results) -> Any:
    """The result of a function of the connection, which is called once for each request."""
    if id(function) not in results:
        results[id(function)] = await called(function, connection)
    return results[id(function)]


# Failures


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
