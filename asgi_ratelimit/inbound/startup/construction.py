"""The construction of a middleware, which Starlette puts off until the app starts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache, wraps
from typing import ParamSpec

from starlette.types import ASGIApp, Scope

from ...errors import ConfigurationError
from ...keys import KeyFunction, path_param
from ...logs import logger
from ...stores import Store
from ..delays import loop_for_messages, require_asyncio
from ..functions.function_arguments import takes
from ..rules import CompiledRule

P = ParamSpec("P")


def logs_errors(construct: Callable[P, None]) -> Callable[P, None]:
    """Log the error that a constructor raises for its arguments, once in this process.

    Starlette builds its middlewares when the server sends the first message of the lifespan. Servers take an error
    there as a sign that the app has no lifespan, and some do not report it.
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
    """Log this once: Starlette tries again at each request, so it would be logged each time."""
    logger.error("RateLimitMiddleware cannot be built, and no request can be answered: %s", text)


def checked_app(app: ASGIApp) -> ASGIApp:
    """``app``, if it can be one; ``ConfigurationError`` otherwise."""
    if callable(app) and takes(app, 3):
        return app
    if callable(app) and takes(app, 2):
        raise ConfigurationError(
            f"{app!r} takes two arguments, as an app of WSGI, not scope, receive and send: "
            'RateLimitMiddleware(WsgiToAsgi(app), "5/minute"), with asgiref.wsgi.WsgiToAsgi'
        )
    raise ConfigurationError(
        f'the app comes first, not {app!r}: app.add_middleware(RateLimitMiddleware, quota="5/minute"), '
        'or RateLimitMiddleware(app, "5/minute")'
    )


def require_usable(rules: Iterable[CompiledRule], scope: Scope, store: Store) -> None:
    """Raise ``ConfigurationError`` for a rule that cannot apply to requests such as that of this scope."""
    for rule in rules:
        if rule.max_delay:
            require_asyncio()
        if rule.messages and not store.in_process:
            loop_for_messages()
        if rule.source is None and "path_params" not in scope:
            _require_no_parameter(rule.key)


def _require_no_parameter(key: KeyFunction) -> None:
    """Raise for a path parameter in the key of a quota for all requests, because no router has read the path yet."""
    if isinstance(key, path_param):
        key.of({})
    for part in getattr(key, "parts", ()):
        _require_no_parameter(part)
