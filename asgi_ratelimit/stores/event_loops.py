"""Code with ``async`` that needs an event loop of asyncio, and reports when another one runs."""

from __future__ import annotations

from asyncio import AbstractEventLoop, get_running_loop

from ..errors import ConfigurationError


def running_loop(what: str, instead: str) -> AbstractEventLoop:
    """The event loop of asyncio that runs here.

    Raises ``ConfigurationError`` if there is none; the error says ``what`` needs one, and what to do ``instead``.
    """
    try:
        return get_running_loop()
    except RuntimeError:
        raise ConfigurationError(
            f"{what} needs asyncio, and no event loop of it is running; under trio, {instead}"
        ) from None
