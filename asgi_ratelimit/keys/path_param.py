"""The key by a parameter of a path: the rule's own path, or the route's."""

from __future__ import annotations

from typing import Any

from starlette.convertors import Convertor
from starlette.types import Scope

from ..argument_errors import shows_use
from ..buckets import short_key
from ..errors import ConfigurationError
from .base import UNREADABLE, PathKey, ScopeKey, as_text, checked_name
from .path_patterns import compile_rule_path, route_path


class path_param(ScopeKey, PathKey):  # noqa: N801  # a function to its users
    """Key by a parameter of the path, as its convertor reads it: ``/items/{id:int}`` has one key for 7 and 007.

    In a rule it is a parameter of the rule's own path; in a route's middleware or a dependency, of the route's path.
    Raises ``ConfigurationError`` for a rule whose path has no such parameter, and for a request that has not been
    routed yet.
    """

    @shows_use('path_param("id")')
    def __init__(self, name: str) -> None:
        self._name = checked_name(name, 'path_param("id")')

    def __repr__(self) -> str:
        return f"path_param({self._name!r})"

    def of(self, scope: Scope) -> str | None:
        """The key of the request with this scope."""
        if "path_params" not in scope:
            raise ConfigurationError(
                f"{self!r} is evaluated before the request is routed: "
                f'use it in a rule whose path has it, Rule("/items/{{{self._name}}}", ..., key={self!r})'
            )
        return as_text(scope["path_params"].get(self._name), repr(self))

    def bind(self, path: str, root: str = "") -> ScopeKey:
        """The key by this parameter of ``path``."""
        return _RulePathParam(self._name, path, root)


class _RulePathParam(ScopeKey):
    """A parameter of a rule's own path, which needs no routing."""

    def __init__(self, name: str, path: str, root: str) -> None:
        self._pattern, convertors = compile_rule_path(path, root)
        if name not in convertors:
            raise ConfigurationError(
                f"path_param({name!r}) needs a parameter {{{name}}}, which {path!r} does not have: "
                f'Rule("/items/{{{name}}}", ..., key=path_param({name!r}))'
            )
        self._name = name
        self._convertor: Convertor[Any] = convertors[name]

    def __repr__(self) -> str:
        return f"path_param({self._name!r})"

    def of(self, scope: Scope) -> str | None:
        """The key of the request with this scope; ``None`` if the path is not the rule's."""
        match = self._pattern.match(route_path(scope))
        return None if match is None else self._converted(match[self._name])

    def _converted(self, text: str) -> str:
        try:
            return short_key(str(self._convertor.convert(text)))
        except ValueError:  # a number of 5,000 digits, which is of no use to the route either
            return UNREADABLE
