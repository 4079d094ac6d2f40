"""The construction of a middleware, which Starlette puts off until the app starts."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from typing import ParamSpec

from starlette.types import ASGIApp

from ...errors import ConfigurationError
from ...logs import logger

P = ParamSpec("P")


def logs_errors(construct: Callable[P, None]) -> Callable[P, None]:
    """Log what a constructor raises for its arguments, once in this process.

    Starlette builds its middlewares when the server sends the first message of the lifespan. Servers take an error
    there for an app that has no lifespan, and some say nothing of it.
    """

    @wraps(construct)
    def logging(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            construct(*args, **kwargs)
        except ValueError as error:
            _log(f"{type(error).__name__}: {error}")
            raise

    return logging


@cache
def _log(text: str) -> None:
    """Starlette tries again at each request, so that this would be logged each time."""
    logger.error("RateLimitMiddleware cannot be built, and no request can be answered: %s", text)


def checked_app(app: ASGIApp) -> ASGIApp:
    """``app``, if it can be one; ``ConfigurationError`` otherwise."""
    if callable(app):
        return app
    raise ConfigurationError(
        f'the app comes first, not {app!r}: app.add_middleware(RateLimitMiddleware, quota="5/minute"), '
        'or RateLimitMiddleware(app, "5/minute")'
    )
