"""``${NAME}`` and ``${NAME:-default}`` in the texts of a file: values of the environment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .config_errors import FileErrors
from .line_numbers import Place

_VARIABLE = re.compile(r"\$(\$?)\{([^{}]*)\}")
_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)


def with_environment(value: Any, environment: Mapping[str, str], errors: FileErrors, place: Place = ()) -> Any:
    """A value with all variables in its texts replaced; ``$${...}`` stands for ``${...}``.

    Raises ``ConfigurationError`` for a variable that is not set and has no default.
    """
    if isinstance(value, dict):
        return {key: with_environment(each, environment, errors, (*place, key)) for key, each in value.items()}
    if isinstance(value, list):
        return [with_environment(each, environment, errors, (*place, at)) for at, each in enumerate(value)]
    if not isinstance(value, str):
        return value

    def replaced(match: re.Match[str]) -> str:
        if match[1]:
            return match[0][1:]
        variable = _NAME.fullmatch(match[2])
        if variable is None:
            raise errors.at(place, f"{match[0]!r} is not a variable: ${{NAME}}, or ${{NAME:-default}}")
        name, default = variable.groups()
        if name not in environment and default is None:
            raise errors.at(
                place, f"the environment variable {name} is not set, and has no default: ${{{name}:-default}}"
            )
        return environment.get(name) or default or ""

    return _VARIABLE.sub(replaced, value)
