"""The number of workers that a server runs, as far as one of them can find out."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Sequence

_VARIABLES = ("WEB_CONCURRENCY", "UVICORN_WORKERS", "GRANIAN_WORKERS")


def number_of_workers() -> int:
    """The number of workers, from the command line and the environment.

    1 if nothing says that there are more, as with several containers.
    """
    arguments = [*sys.argv, *_split(os.environ.get("GUNICORN_CMD_ARGS", ""))]
    from_environment = [_number(os.environ.get(name)) for name in _VARIABLES]
    return max(1, *_workers_in(arguments), *from_environment)


def _workers_in(arguments: Sequence[str]) -> Iterator[int]:
    """The numbers on the command line of uvicorn, gunicorn, hypercorn, granian or fastapi."""
    for option, following in zip(arguments, [*arguments[1:], ""]):
        name, equals, value = option.partition("=")
        if name in ("--workers", "-w"):
            yield _number(value if equals else following)
        elif option.startswith("-w"):
            yield _number(option[2:])


def _number(text: str | None) -> int:
    return int(text) if text and text.isdecimal() and text.isascii() else 1


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()
