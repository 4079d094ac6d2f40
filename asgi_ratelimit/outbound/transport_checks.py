"""Checks what a transport of this package wraps: a wrong argument raises an error that shows the right use."""

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
    """Whether a transport sends requests of clients without ``async``."""
    return callable(getattr(transport, "handle_request", None))


def sends_with_async(transport: Any) -> bool:
    """Whether a transport sends requests of clients with ``async``."""
    return callable(getattr(transport, "handle_async_request", None))


def require_client(transport: Any, example: str, is_async: bool, request: Any = None) -> None:
    """Raise ``ConfigurationError`` if a client of the other kind, or of the other package, uses a transport.

    A client is asynchronous or not. Its ``request`` shows the package; a transport of neither package serves both.
    """
    package = "" if request is None else _package(type(request))
    kind, client = ("with", "AsyncClient") if is_async else ("without", "Client")
    inner = f"{package or 'httpx'}.{'AsyncHTTPTransport' if is_async else 'HTTPTransport'}()"
    right = f"{package or 'httpx'}.{client}(transport={example.format(inner)})"
    if not (sends_with_async if is_async else sends)(transport):
        raise ConfigurationError(f"{transport!r} cannot send the requests of a client {kind} async: {right}")
    own = {_package(each) for each in type(transport).__mro__} - {""}
    if package and own and package not in own:
        raise ConfigurationError(
            f"{transport!r} is a transport of {min(own)}, and the client that it is in is one of {package}: {right}"
        )


def _package(kind: type) -> str:
    """The package of a class, if that is httpx or httpx2."""
    name = kind.__module__.partition(".")[0]
    return name if name in ("httpx", "httpx2") else ""
