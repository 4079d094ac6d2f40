"""Functions that are dependencies of FastAPI by their parameters, and that only FastAPI can call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from inspect import Parameter, Signature, isroutine, signature
from typing import Any
from uuid import UUID

from ...errors import ConfigurationError

_INSTEAD = {
    "key": "write key=Depends({name}), which a RateLimit takes",
    "quota": "let a dependency set request.state.plan, which quota=lambda request: QUOTAS[request.state.plan] reads",
    "cost": "let a dependency set request.state.cost, which cost=lambda request: request.state.cost reads",
    "allow": "write a function of the request, allow=lambda request: request.headers.get('x-staff') == SECRET",
    "deny": "write a function of the request, deny=lambda request: request.headers.get('user-agent') in BOTS",
    "function": "let a dependency set request.state.plan, which the function returns, def plan_of(request)",
}
"""What to write instead, for each argument that may be a function of the request."""

_INSTEAD_OF_SCHEMES = {
    **_INSTEAD,
    "key": 'write a dependency that checks it and returns the id, RateLimit("5/minute", key=Depends(current_user_id))',
}
"""The same for a security scheme."""

_VALUES = (str, int, float, bool, bytes, UUID)
"""Annotations of parameters that are no requests."""


def require_no_dependency(what: str, function: Callable[..., object]) -> None:
    """Raise ``ConfigurationError`` for a function with parameters that only FastAPI fills, and for a security scheme.

    Called with a request instead, such a function would return no key, or a wrong one. A scheme returns whatever
    credential a client sends.
    """
    if what not in _INSTEAD:
        return
    if _is_security_scheme(function):
        raise ConfigurationError(
            f"{what}={_name_of_scheme(function)}(...) is a security scheme of FastAPI, which takes any credential that "
            f"a client makes up: {_INSTEAD_OF_SCHEMES[what]}"
        )
    parameter = next(_filled_by_fastapi(function), None)
    if parameter is None:
        return
    name = getattr(function, "__name__", repr(function))
    raise ConfigurationError(
        f"{what}={name} is a dependency of FastAPI, because of its parameter {parameter!r}, and only FastAPI can call "
        f"it: {_INSTEAD[what].format(name=name)}"
    )


def _is_security_scheme(function: Any) -> bool:
    """Whether a call of this is a call of FastAPI's own, as of an ``APIKeyHeader``; FastAPI is not imported here.

    A class of the program's that inherits from one may have a call that checks what it gets.
    """
    call = function if isroutine(function) else type(function).__call__
    return str(getattr(call, "__module__", "")).startswith("fastapi.security.")


def _name_of_scheme(function: Any) -> str:
    return type(getattr(function, "__self__", function)).__name__


def _filled_by_fastapi(function: Callable[..., object]) -> Iterator[str]:
    """The parameters that FastAPI fills, as with ``Header()``, and the first required one if it is no request."""
    parameters = _parameters(function)
    yield from [name for name, each in parameters.items() if _is_filled(each)]
    required = [name for name, each in parameters.items() if each.default is Parameter.empty]
    yield from [name for name in required[:1] if parameters[name].annotation in _VALUES]


def call_signature(function: Callable[..., object], *, eval_str: bool = False) -> Signature:
    """The signature by which a function is called; that of a function which it wraps only if it takes ``*args``.

    Raises ``TypeError`` or ``ValueError`` if there is none.
    """
    own = signature(function, follow_wrapped=False, eval_str=eval_str)
    passes_all = any(each.kind is Parameter.VAR_POSITIONAL for each in own.parameters.values())
    return signature(function, eval_str=eval_str) if passes_all else own


def _parameters(function: Callable[..., object]) -> Mapping[str, Parameter]:
    try:
        return call_signature(function, eval_str=True).parameters
    except Exception:  # noqa: BLE001  # an annotation as text is an expression of the program, and may raise anything
        pass
    try:
        return call_signature(function).parameters
    except (TypeError, ValueError):
        return {}


def _is_filled(parameter: Parameter) -> bool:
    """Whether the default, or a part of the annotation, is a ``Depends``, ``Header`` or the like of FastAPI."""
    marks = (parameter.default, *getattr(parameter.annotation, "__metadata__", ()))
    return any(_is_of_fastapi(mark) for mark in marks)


def _is_of_fastapi(mark: Any) -> bool:
    return type(mark).__module__ == "fastapi.params"
