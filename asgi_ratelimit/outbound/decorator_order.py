"""Decorators in the wrong order: ``@pace`` above ``@app.get`` paces a function that no request calls."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any

from ..logs import warn_once


def warn_of_route(function: Callable[..., Any]) -> None:
    """Warn if a function is already the endpoint of a route, so that requests call it without its pace.

    Only objects that have registered the function refer to it when it is decorated. So a function without such
    references is not searched for.
    """
    if sys.getrefcount(function) <= _OF_A_NEW_FUNCTION:
        return
    path = next((path for each in gc.get_referrers(function) if (path := _path(each, function)) is not None), None)
    if path is not None:
        name = getattr(function, "__qualname__", repr(function))
        warn_once(
            "a-decorator-above-a-route",
            f"@pace is above the decorator of the route {path!r}, which has registered {name} without its pace: put "
            "@pace below it, next to the def",
        )


def _path(referrer: object, function: Callable[..., Any]) -> str | None:
    """The path of a route, or of the attributes of one, whose endpoint is this function."""
    attributes = referrer if isinstance(referrer, dict) else _vars(referrer)
    if attributes.get("endpoint") is not function:
        return None
    path = attributes.get("path")
    return path if isinstance(path, str) else None


def _vars(referrer: object) -> dict[str, Any]:
    try:
        return vars(referrer)
    except TypeError:  # it has none
        return {}


def _count(function: Callable[..., Any]) -> int:
    return sys.getrefcount(function)


class _Decorator:
    """Counts the references to a function exactly as they are when ``Pace`` has called ``warn_of_route``."""

    def __call__(self, function: Callable[..., Any]) -> int:
        return _count(function)


_OF_A_NEW_FUNCTION = _Decorator()(lambda: None)
