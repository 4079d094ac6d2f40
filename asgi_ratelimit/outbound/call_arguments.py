"""Keys and costs that depend on the arguments of a call."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from ..errors import ConfigurationError

Resolve: TypeAlias = Callable[[tuple[Any, ...], Mapping[str, Any]], Any]
"""Maps the positional and the keyword arguments of a call to a value."""


def depends_on_call(given: Any) -> bool:
    """Whether a ``key`` or ``cost`` is a function of the call, or a mapping with one in it."""
    return callable(given) or (isinstance(given, Mapping) and any(map(callable, given.values())))


def from_call(given: Any, function: Callable[..., Any], what: str) -> Resolve:
    """How to resolve ``given``, a value or a function of some arguments, for each call of ``function``.

    Raises ``ConfigurationError`` if ``given`` needs an argument that ``function`` does not have.
    """
    if isinstance(given, Mapping):
        parts = {name: from_call(part, function, what) for name, part in given.items()}
        return lambda args, kwargs: {name: part(args, kwargs) for name, part in parts.items()}
    if not callable(given):
        return lambda args, kwargs: given
    signature = inspect.signature(function)
    names = _parameters(given, signature, what)

    def resolve(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        call = signature.bind(*args, **kwargs)
        call.apply_defaults()
        return given(**{name: call.arguments[name] for name in names})

    return resolve


def _parameters(given: Callable[..., Any], signature: inspect.Signature, what: str) -> list[str]:
    """The names of the parameters of ``given``, all of which a call has as arguments."""
    try:
        parameters = inspect.signature(given).parameters.values()
    except (TypeError, ValueError):
        raise ConfigurationError(f"{what}={given!r} does not say what arguments it takes: {_example(what)}") from None
    names = []
    for parameter in parameters:
        named = parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        if named and parameter.name in signature.parameters:
            names.append(parameter.name)
        elif parameter.default is parameter.empty:
            available = ", ".join(signature.parameters) or "none"
            raise ConfigurationError(
                f"{what} needs {parameter}, but a call has the arguments {available}: {_example(what)}"
            )
    return names


def _example(what: str) -> str:
    return f"pace(..., {what}=lambda account: account.id) gets the argument named account"
