"""A limit that FastAPI takes for something else than a dependency, and that would limit nobody."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from inspect import signature
from typing import Any, Self

from ...errors import ConfigurationError
from ...keys import client_ip
from ...keys.base import ScopeKey, is_dependency

_RIGHT = 'Depends(RateLimit("2/minute"))'


class _Schema:
    """What pydantic asks of a limit in an annotation, or of its class as one: a model may have a limit as a field."""

    def __get__(self, limit: object | None, owner: type[Any]) -> Callable[..., Any]:
        return _checked_annotation if limit is None else _refuse_annotation


def _checked_annotation(source: Any, handler: Any) -> Any:
    try:
        return handler(source)  # a model may take any type
    except Exception:  # noqa: BLE001  # that of pydantic, which is not imported here
        raise ConfigurationError(
            f"RateLimit alone as the annotation of a parameter lacks Depends: limit: Annotated[Any, {_RIGHT}]"
        ) from None


def _refuse_annotation(source: Any, handler: Any) -> Any:
    raise ConfigurationError(f"a RateLimit in an annotation lacks Depends: limit: Annotated[Any, {_RIGHT}]")


class NeedsDepends:
    """What raises ``ConfigurationError`` where a limit stands without ``Depends``, as early as FastAPI lets it."""

    __get_pydantic_core_schema__ = _Schema()

    @property
    def dependency(self) -> Any:
        """FastAPI looks for this attribute in a list of dependencies. Raises ``ConfigurationError``."""
        raise ConfigurationError('a RateLimit lacks Depends: dependencies=[Depends(RateLimit("5/minute"))]')

    def __iter__(self) -> Iterator[Any]:
        """FastAPI makes a list of ``dependencies=``. Raises ``ConfigurationError``, because a limit is none."""
        raise ConfigurationError('a RateLimit is not a list: dependencies=[Depends(RateLimit("5/minute"))]')

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """The limit itself, as a part of a router, say. FastAPI copies the default of a parameter alone."""
        if not memo:
            raise _as_default("limit")
        return self


def _as_default(parameter: str) -> ConfigurationError:
    return ConfigurationError(
        f"a RateLimit as the default of a parameter lacks Depends, and limits nobody: {parameter}={_RIGHT}"
    )


def require_no_default(function: Any) -> None:
    """Raise ``ConfigurationError`` for a function that FastAPI calls with a limit as the default of a parameter."""
    if isinstance(function, NeedsDepends):
        return
    try:
        parameters = signature(function).parameters.values()
    except (TypeError, ValueError):
        return
    for each in parameters:
        if isinstance(each.default, NeedsDepends):
            raise _as_default(each.name)


def require_no_factory(dependency: Any) -> None:
    """Raise ``ConfigurationError`` for a dependency that, by its annotation, returns a limit, which nobody calls."""
    try:
        returned = signature(dependency, eval_str=True).return_annotation
    except Exception:  # noqa: BLE001  # an annotation as text is an expression of the program, and may raise anything
        return
    if isinstance(returned, type) and issubclass(returned, NeedsDepends):
        name = getattr(dependency, "__name__", repr(dependency))
        raise ConfigurationError(
            f"{name} returns a RateLimit, which FastAPI does not call, so that it limits nobody: Depends({name}()), or "
            'for a quota of each request Depends(RateLimit(lambda request: "2/minute"))'
        )


def require_called_keys(dependency: Any) -> None:
    """Raise ``ConfigurationError`` for ``Depends(client_ip)`` in a dependency, or in those that it needs.

    FastAPI would make the key for each request, with arguments that the client chooses.
    """
    if isinstance(dependency, type) and issubclass(dependency, ScopeKey):
        name, arguments = dependency.__name__, "" if dependency is client_ip else "..."
        raise ConfigurationError(
            f"Depends({name}) lacks the call of {name}, so that each client would choose its arguments: "
            f"Depends({name}({arguments}))"
        )
    try:
        parameters = signature(dependency, eval_str=True).parameters.values()
    except Exception:  # noqa: BLE001  # an annotation as text is an expression of the program, and may raise anything
        return
    for each in parameters:
        for mark in (each.default, *getattr(each.annotation, "__metadata__", ())):
            if is_dependency(mark):
                require_called_keys(mark.dependency or getattr(each.annotation, "__origin__", each.annotation))
