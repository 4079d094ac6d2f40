"""Keys and costs that depend on the arguments of a call."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from ..errors import ConfigurationError

Resolve: TypeAlias = Callable[[tuple[Any, ...], Mapping[str, Any]], Any]
"""From the positional and the named arguments of a call to a value."""


def depends_on_call(given: Any) -> bool:
    """Whether a ``key`` or ``cost`` is a function of the call, or a mapping with one in it."""
    return callable(given) or (isinstance(given, Mapping) and any(map(callable, given.values())))


def from_call(given: Any, function: Callable[..., Any], what: str) -> Resolve:
    """How to work out ``given`` for a call of ``function``: a value, or a function that names the arguments it wants.

    Raises ``ConfigurationError`` for one that asks for an argument that ``function`` does not have.
    """
    if isinstance(given, Mapping):
        parts = {name: from_call(part, function, what) for name, part in given.items()}
        return lambda args, kwargs: {name: part(args, kwargs) for name, part in parts.items()}
    if not callable(given):
        return lambda args, kwargs: given
    signature = inspect.signature(function)
    finders = {name: _finder(name, signature) for name in _wanted(given, signature, what)}
    return lambda args, kwargs: given(**{name: find(args, kwargs) for name, find in finders.items()})


def _finder(name: str, signature: inspect.Signature) -> Resolve:
    """How to find the argument ``name`` of a call: where it usually is, at once, and else as Python does."""
    parameter = signature.parameters[name]
    position = list(signature.parameters).index(name)
    is_plain = parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)

    def find(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        if is_plain and position < len(args) and name not in kwargs:
            return args[position]
        call = signature.bind(*args, **kwargs)
        call.apply_defaults()
        return call.arguments[name]

    return find


def _wanted(given: Callable[..., Any], signature: inspect.Signature, what: str) -> list[str]:
    """The names of the arguments that a function of a call asks for, all of which the call has."""
    try:
        wanted = inspect.signature(given).parameters.values()
    except (TypeError, ValueError):
        raise ConfigurationError(f"{what}={given!r} does not say what arguments it takes: {_example(what)}") from None
    names = []
    for parameter in wanted:
        named = parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        if named and parameter.name in signature.parameters:
            names.append(parameter.name)
        elif parameter.default is parameter.empty:
            known = ", ".join(signature.parameters) or "none"
            raise ConfigurationError(
                f"{what} asks for {parameter}, where a call has the arguments {known}: {_example(what)}"
            )
    return names


def _example(what: str) -> str:
    return f"pace(..., {what}=lambda account: account.id) is given the argument named account"
