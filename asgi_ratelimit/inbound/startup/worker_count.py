"""The number of workers that a server runs, as far as one of them can find out."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from multiprocessing import current_process
from typing import Any

_VARIABLES = ("WEB_CONCURRENCY", "UVICORN_WORKERS", "GRANIAN_WORKERS")
_ARBITER = "gunicorn.arbiter"


def number_of_workers() -> int:
    """The number of workers, from the command line, the environment, and uvicorn's or gunicorn's settings.

    1 if nothing says that there are more, as with several containers.
    """
    arguments = [*sys.argv, *_split(os.environ.get("GUNICORN_CMD_ARGS", ""))]
    from_environment = [_number(os.environ.get(name)) for name in _VARIABLES]
    return max(1, *_workers_in(arguments), *from_environment, _of_uvicorn(), _of_gunicorn())


def _workers_in(arguments: Sequence[str]) -> Iterator[int]:
    """The numbers on the command line of uvicorn, gunicorn, hypercorn, granian or fastapi."""
    for option, following in zip(arguments, [*arguments[1:], ""]):
        name, equals, value = option.partition("=")
        if name in ("--workers", "-w"):
            yield _number(value if equals else following)
        elif option.startswith("-w"):
            yield _number(option[2:])


def _of_uvicorn() -> int:
    """The number that ``uvicorn.run(app, workers=4)`` has passed to this process."""
    config = getattr(current_process(), "_kwargs", {}).get("config")
    return _integer(getattr(config, "workers", None))


def _of_gunicorn() -> int:
    """The number that the arbiter was configured with; it has forked this process, and is still on its stack."""
    frame = sys._getframe() if _ARBITER in sys.modules else None
    while frame is not None:
        if frame.f_globals.get("__name__") == _ARBITER:
            return _integer(getattr(frame.f_locals.get("self"), "num_workers", None))
        frame = frame.f_back
    return 1


def _integer(value: Any) -> int:
    return value if isinstance(value, int) else 1


def _number(text: str | None) -> int:
    return int(text) if text and text.isdecimal() and text.isascii() else 1


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()
