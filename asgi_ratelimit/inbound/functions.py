"""Functions of the program: how arguments that are functions are checked, called, and reported when they fail.

A wrong one raises an error at once that shows a right one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from inspect import Parameter, Signature, isroutine, signature
from typing import Any, TypeAlias, cast

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection, Request
from starlette.types import Scope

from ..counts import Counts
from ..decision import checked_cost
from ..errors import ConfigurationError
from ..hooks import Failure
from ..hooks.calling import Hooks
from ..keys import KeyFunction, client_ip, combine, first_of
from ..keys.base import ScopeKey, is_dependency, lacks_its_call
from ..logs import FailureLog, warn_once
from ..quota_text import QuotaLike

QuotaFunction: TypeAlias = Callable[[Any], "QuotaLike | Awaitable[QuotaLike | None] | None"]
"""The quota of a connection, ``None`` for no limit."""

CostFunction: TypeAlias = Callable[[Any], "float | Awaitable[float]"]
"""The cost of a connection in units, 0 for nothing."""

SettleFunction: TypeAlias = (
    Callable[[int, Headers], "float | Awaitable[float | None] | None"]
    | Callable[[int, Headers, int], "float | Awaitable[float | None] | None"]
)
"""The actual cost in units, from the status and headers of the answer and the bytes of its body; ``None``: as
charged."""

_KEY = 'key=client_ip(), or key=lambda request: request.headers.get("x-user")'
_DEPENDENCY = 'RateLimit("5/minute", key=Depends(current_user_id))'
_QUOTA = 'quota=lambda request: "100/minute"'
_COST = "cost=lambda request: 5"
_SETTLE = "settle=lambda status, headers: 0 if status < 400 else 1"


# Arguments that are functions


def checked_key(key: Any) -> KeyFunction:
    """A function of the connection; ``ConfigurationError`` for anything else."""
    if isinstance(key, ScopeKey):
        return key
    if is_dependency(key):
        raise ConfigurationError(f"key={key!r} is for a RateLimit, whose dependencies FastAPI calls: {_DEPENDENCY}")
    if key in (combine, first_of):
        raise _lacks_its_call("key", key)
    for part in getattr(key, "parts", ()):
        checked_key(part)
    function: KeyFunction = require_function("key", key, 1, _KEY)
    return function


def address_key(keys: Iterable[KeyFunction | None]) -> client_ip:
    """The first ``client_ip`` among these and their parts, which knows the trusted proxies; or else one without any."""
    return next(_address_keys(keys), None) or client_ip()


def _address_keys(keys: Iterable[KeyFunction | None]) -> Iterator[client_ip]:
    for key in keys:
        if isinstance(key, client_ip):
            yield key
        yield from _address_keys(getattr(key, "parts", ()))


def checked_quota(quota: QuotaLike | QuotaFunction) -> QuotaLike | QuotaFunction:
    """A quota, not parsed yet, or a function of the connection; ``ConfigurationError`` for another function."""
    return require_function("quota", quota, 1, _QUOTA) if callable(quota) else quota


def checked_cost_or_function(cost: float | CostFunction) -> float | CostFunction:
    """A cost, or a function of the connection; ``ConfigurationError`` or ``ValueError`` for anything else."""
    return require_function("cost", cost, 1, _COST) if callable(cost) else checked_cost(cost)


def takes_bytes(settle: SettleFunction) -> bool:
    """Whether a settle function takes the bytes of an answer; ``ConfigurationError`` for anything else."""
    if callable(settle) and not isinstance(settle, type):
        for count in (2, 3):
            if takes(settle, count):
                return count == 3
    problem = f"settle is a function of the status and the headers, and perhaps of the bytes, not {settle!r}"
    raise ConfigurationError(f"{problem}: {_SETTLE}")


def require_function(what: str, function: Any, count: int, example: str) -> Any:
    """``function`` if it can be called with ``count`` arguments; ``ConfigurationError`` otherwise."""
    arguments = ("the connection", "the connection and the decision")[count - 1]
    if lacks_its_call(function):
        raise _lacks_its_call(what, function)
    if not callable(function):
        raise ConfigurationError(f"{what} is a function of {arguments}, not {function!r}: {example}")
    if _is_for_fastapi(function):
        right = _DEPENDENCY if what == "key" else example
        raise ConfigurationError(
            f"{what}={_name(function)} is a dependency of FastAPI, which nobody else can call: {right}"
        )
    if not takes(function, count):
        text = f"{_name(function)}{_call_signature(function)}"
        raise ConfigurationError(f"{what} is called with {arguments}, which {text} does not take: {example}")
    return function


def takes(function: Callable[..., object], count: int) -> bool:
    """Whether a function can be called with ``count`` arguments; true if that cannot be determined."""
    try:
        own = _call_signature(function)
    except (TypeError, ValueError):
        return True
    try:
        own.bind(*[None] * count)
    except TypeError:
        return False
    return True


def _lacks_its_call(what: str, function: Any) -> ConfigurationError:
    name = function.__name__
    return ConfigurationError(f"{what}={name} lacks its call: {what}={name}(...)")


def _name(function: Any) -> str:
    return cast("str", getattr(function, "__name__", type(function).__name__))


def _call_signature(function: Callable[..., object], *, eval_str: bool = False) -> Signature:
    """The signature by which a function is called; that of a function which it wraps only if it takes ``*args``.

    Raises ``TypeError`` or ``ValueError`` if there is none.
    """
    own = signature(function, follow_wrapped=False, eval_str=eval_str)
    passes_all = any(each.kind is Parameter.VAR_POSITIONAL for each in own.parameters.values())
    return signature(function, eval_str=eval_str) if passes_all else own


def _is_for_fastapi(function: Any) -> bool:
    """Whether this is a security scheme, or has a parameter that only FastAPI fills, such as ``Header()``.

    FastAPI is not imported here. A scheme returns whatever credential a client makes up. A class of the program's that
    inherits from one may have a call that checks what it gets.
    """
    call = function if isroutine(function) else type(function).__call__
    if str(getattr(call, "__module__", "")).startswith("fastapi.security."):
        return True
    return any(map(_is_filled_by_fastapi, signature_of(function).parameters.values()))


def _is_filled_by_fastapi(parameter: Parameter) -> bool:
    """Whether its default, or a part of its annotation, is a ``Depends``, ``Header`` or the like."""
    marks = (parameter.default, *getattr(parameter.annotation, "__metadata__", ()))
    return any(type(mark).__module__ == "fastapi.params" for mark in marks)


def signature_of(function: Callable[..., object]) -> Signature:
    """The signature of a function, with annotations as objects where they can be read; an empty one if it has none."""
    for eval_str in (True, False):
        with suppress(Exception):  # an annotation as text is an expression of the program, and may raise anything
            return _call_signature(function, eval_str=eval_str)
    return Signature()


# Calls


Results: TypeAlias = dict[int, Any]
"""The results of functions for one request, by the identity of the function: each is called once."""


def connection_of(scope: Scope) -> HTTPConnection:
    """The argument of these functions: a ``Request`` without its body, or the connection of a handshake."""
    return Request(scope) if scope["type"] == "http" else HTTPConnection(scope)


async def called_once(function: Any, connection: HTTPConnection, results: Results) -> Any:
    """The result of a function of the connection, which is called once for each request."""
    identity = id(function)
    if identity not in results:
        result = function(connection)
        results[identity] = await result if hasattr(result, "__await__") else result
    return results[identity]


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
            self._counts[name].failed += 1
        self._hooks.failed(Failure(name, failed, error))


WATCHED = 100
"""How many requests without a key are enough to warn."""


class KeyWatch:
    """Watches the keys of a rule until the first one comes, or until enough requests had none: it limits nobody."""

    __slots__ = ("_missing", "is_over")

    def __init__(self) -> None:
        self._missing = 0
        self.is_over = False
        """Whether the keys need not be watched any longer."""

    @property
    def is_silent(self) -> bool:
        """Whether the key was ``None`` for all of the first requests."""
        return self._missing >= WATCHED

    def see(self, key: str | None, name: str, function: KeyFunction) -> None:
        """Take note of the key of a request, as the ``function`` of the rule ``name`` returned it."""
        self._missing = self._missing + 1 if key is None else 0
        self.is_over = key is not None or self.is_silent
        if self.is_silent:
            problem = f"the key of {name!r}, {function!r}, was None for all of the first {WATCHED} requests"
            mend = "is its name right, do clients send it, and is it set before the limit runs, as by"
            warn_once("a-key-that-never-comes", f"{problem}, so it limits nobody: {mend} {_DEPENDENCY}?")
