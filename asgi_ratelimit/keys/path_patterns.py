"""Paths in Starlette's own syntax, and the part of a request's path that they are about."""

from __future__ import annotations

import re
from typing import Any

from starlette.convertors import Convertor
from starlette.routing import compile_path
from starlette.types import Scope

from ..errors import ConfigurationError


def route_path(scope: Scope) -> str:
    """The path below the root path: what the routes of this app, mounted or not, are matched against."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    below = path.removeprefix(root)
    return below if not below or below.startswith("/") else path


def compiled(path: str) -> tuple[re.Pattern[str], dict[str, Convertor[Any]]]:
    """The pattern of a path and the convertors of its parameters; ``ConfigurationError`` for what is no path."""
    if not isinstance(path, str) or not path.startswith("/"):
        raise ConfigurationError(f'the path of a rule starts with "/", not {path!r}: Rule("/users/{{id}}", ...)')
    try:
        pattern, _, convertors = compile_path(path)
        return re.compile(pattern.pattern, re.DOTALL), convertors  # no character may lead past a rule
    except (AssertionError, KeyError, ValueError) as error:
        raise ConfigurationError(f'{path!r} is no path: {error}: Rule("/users/{{id:int}}", ...)') from error
