"""Checks arguments that are, or may be, functions: a wrong one raises an error at once that shows a right one."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, TypeAlias, cast

from starlette.datastructures import Headers

from ...decision import checked_cost
from ...errors import ConfigurationError
from ...keys import KeyFunction, client_ip, combine, first_of
from ...keys.base import ScopeKey, is_dependency, lacks_its_call
from ...quota_text import QuotaLike
from .dependency_parameters import call_signature, require_no_dependency

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

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)

_KEY = 'key=client_ip(), or key=lambda request: request.headers.get("x-user")'
_DEPENDENCY = 'Depends(RateLimit("5/minute", key=Depends(current_user_id)))'
_QUOTA = 'quota=lambda request: "100/minute"'
_COST = "cost=lambda request: 5"
_SETTLE = "settle=lambda status, headers: 0 if status < 400 else 1"


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
        count = _count_of_parameters(settle)
        if 2 <= count <= 3 and takes(settle, count):
            return count == 3
    raise ConfigurationError(
        f"settle is a function of the status and the headers, and, optionally, of the bytes sent, not {settle!r}: "
        f"{_SETTLE}"
    )


def require_function(what: str, function: Any, count: int, example: str) -> Any:
    """``function`` if it can be called with ``count`` arguments; ``ConfigurationError`` otherwise."""
    arguments = ("the connection", "the connection and the decision")[count - 1]
    if lacks_its_call(function):
        raise _lacks_its_call(what, function)
    if not callable(function):
        raise ConfigurationError(f"{what} is a function of {arguments}, not {function!r}: {example}")
    require_no_dependency(what, function)
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigurationError(f"{what} is a function that returns, and {_text(function)} yields: {example}")
    if not takes(function, count):
        raise ConfigurationError(f"{what} is called with {arguments}, which {_text(function)} does not take: {example}")
    return function


def _lacks_its_call(what: str, function: Any) -> ConfigurationError:
    name = function.__name__
    return ConfigurationError(f"{what}={name} lacks its call: {what}={name}(...)")


def takes(function: Callable[..., object], count: int) -> bool:
    """Whether a function can be called with ``count`` arguments; true if that cannot be determined."""
    try:
        signature = call_signature(function)
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(*[None] * count)
    except TypeError:
        return False
    return True


def _text(function: Callable[..., object]) -> str:
    name = cast("str", getattr(function, "__name__", repr(function)))
    return f"{name}{call_signature(function)}"


def _count_of_parameters(function: Callable[..., object]) -> int:
    """How many arguments a function takes by position; those with a default do not count."""
    try:
        parameters = call_signature(function).parameters.values()
    except (TypeError, ValueError):
        return 2
    return sum(each.kind in _POSITIONAL and each.default is inspect.Parameter.empty for each in parameters)
