"""Path patterns in Starlette's own syntax, and the part of a request's path that they are matched against."""

from __future__ import annotations

import re
from typing import Any

from starlette import routing
from starlette.convertors import Convertor
from starlette.types import Scope

from ..errors import ConfigurationError


def route_path(scope: Scope) -> str:
    """The path below the root path: what the routes of this app, mounted or not, are matched against."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    below = path.removeprefix(root)
    return below if not below or below.startswith("/") else path


def compile_path(path: str) -> tuple[re.Pattern[str], dict[str, Convertor[Any]]]:
    """The pattern of a path and the convertors of its parameters. Raises ``ConfigurationError`` for an invalid path."""
    if not isinstance(path, str) or not path.startswith("/"):
        raise ConfigurationError(f'the path of a rule starts with "/", not {path!r}: Rule("/users/{{id}}", ...)')
    try:
        pattern, _, convertors = routing.compile_path(path)
        return re.compile(pattern.pattern, re.DOTALL), convertors  # a newline must not lead past a rule
    except (AssertionError, KeyError, ValueError) as error:
        raise ConfigurationError(f'{path!r} is not a valid path: {error}: Rule("/users/{{id:int}}", ...)') from error
