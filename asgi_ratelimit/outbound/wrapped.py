"""What a transport of this package wraps: the wrong things are refused, each with its mend."""

from __future__ import annotations

from typing import Any

from ..errors import ConfigurationError


def checked_transport(transport: Any, example: str) -> Any:
    """``transport``, if it sends requests with or without ``async``; ``ConfigurationError`` for anything else.

    ``example`` is how to wrap one, ``"AdaptiveTransport({})"``.
    """
    name, right = example.partition("(")[0], example.format("httpx.HTTPTransport()")
    if isinstance(transport, type):
        raise ConfigurationError(f"{transport.__name__} lacks its call: {name}({transport.__name__}(), ...)")
    if sends(transport) or sends_with_async(transport):
        return transport
    if callable(getattr(transport, "send", None)):
        client = type(transport).__name__
        raise ConfigurationError(
            f"{name} goes into a client, not around one such as {client}: httpx.Client(transport={right})"
        )
    raise ConfigurationError(f"{name} wraps a transport of httpx or httpx2, not {transport!r}: {right}")


def sends(transport: Any) -> bool:
    """Whether it sends requests of clients without ``async``."""
    return callable(getattr(transport, "handle_request", None))


def sends_with_async(transport: Any) -> bool:
    """Whether it sends requests of clients with ``async``."""
    return callable(getattr(transport, "handle_async_request", None))


def of_other_clients(transport: Any, example: str, is_async: bool) -> ConfigurationError:
    """The error for a transport in a client of the other kind, with ``async`` or without."""
    kind, client = ("with", "AsyncClient") if is_async else ("without", "Client")
    right = example.format("httpx.AsyncHTTPTransport()" if is_async else "httpx.HTTPTransport()")
    return ConfigurationError(
        f"{transport!r} cannot send the requests of a client {kind} async: httpx.{client}(transport={right})"
    )
