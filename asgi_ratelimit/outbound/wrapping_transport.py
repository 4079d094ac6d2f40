"""The common base of transports for clients of httpx and httpx2: what they may wrap and serve, and their two faces."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Self

from ..background import background_loop, see_all_through
from ..errors import ConfigurationError, require_number
from ..hooks import Hooks
from ..stores import Store
from ..waiting.drivers import Flow, run_async, run_sync
from .pace_decorator import turn_to_begin

if TYPE_CHECKING:  # clients are typed with these classes, but any object with the same methods works
    import httpx
    import httpx2

    class _Transport(httpx.BaseTransport, httpx.AsyncBaseTransport, httpx2.BaseTransport, httpx2.AsyncBaseTransport):
        def handle_request(self, request: Any) -> Any: ...
        async def handle_async_request(self, request: Any) -> Any: ...
else:
    _Transport = object


class WrappingTransport(_Transport):
    """A transport around another one, in clients with and without ``async``; a context manager of both kinds."""

    _store: Store
    _owns_store: bool
    """Whether it was opened here, so that it is closed with the transport."""
    _hooks = Hooks(())
    """Those whose calls are completed when it is closed."""

    def _send(self, request: Any) -> Flow[Any]:
        """Send a request, and return its answer."""
        raise NotImplementedError

    def handle_request(self, request: Any) -> Any:
        """Send a request when it may go."""
        if False not in self._served:
            self._check_client(request, is_async=False)
        return run_sync(self._send(request))

    async def handle_async_request(self, request: Any) -> Any:
        """Send a request when it may go."""
        if True not in self._served:
            self._check_client(request, is_async=True)
        if (turn := turn_to_begin()) is not None:
            await turn
        return await run_async(self._send(request))

    def close(self) -> None:
        """Close the wrapped transport, and the store if it was opened here."""
        try:
            self._transport.close()
        finally:
            if self._hooks or not self._store.in_process:
                background_loop.run(self._close_own())

    async def aclose(self) -> None:
        """Close the wrapped transport, and the store if it was opened here."""
        try:
            await self._transport.aclose()
        finally:
            await self._close_own()

    async def _close_own(self) -> None:
        """Wait for the calls of hooks, and for what is given back, and close the store if it was opened here."""
        await self._hooks.aclose()
        await see_all_through(self._store)
        if self._owns_store:
            await self._store.aclose()

    def _wrap(self, transport: Any, example: str) -> None:
        """Wrap a transport, as in ``example``, ``"AdaptiveTransport({})"``.

        Raises ``ConfigurationError`` for anything that does not send requests with or without ``async``.
        """
        self._transport = transport
        # The kinds of clients, with ``async`` or without, of which a request has shown that they can be served.
        self._served: set[bool] = set()
        self._example = example
        name, right = example.partition("(")[0], example.format("httpx.HTTPTransport()")
        if isinstance(transport, type):
            raise ConfigurationError(f"{transport.__name__} lacks its call: {name}({transport.__name__}(), ...)")
        if hasattr(transport, "send"):
            client = f"{name} goes into a client, not around one such as {type(transport).__name__}"
            raise ConfigurationError(f"{client}: httpx.Client(transport={right})")
        if not hasattr(transport, "handle_request") and not hasattr(transport, "handle_async_request"):
            raise ConfigurationError(f"{name} wraps a transport of httpx or httpx2, not {transport!r}: {right}")

    def _check_client(self, request: Any, is_async: bool) -> None:
        """Raise ``ConfigurationError`` if the client of the first request cannot be served.

        It may be of the other kind, with ``async`` or without, or of the other package; a transport of neither package
        serves both.
        """
        package, prefix = "" if request is None else _package(type(request)), "Async" if is_async else ""
        right = self._example.format(f"{package or 'httpx'}.{prefix}HTTPTransport()")
        right = f"{package or 'httpx'}.{prefix}Client(transport={right})"
        if not hasattr(self._transport, "handle_async_request" if is_async else "handle_request"):
            kind = "with" if is_async else "without"
            raise ConfigurationError(f"{self._transport!r} cannot send requests of a client {kind} async: {right}")
        own = {_package(each) for each in type(self._transport).__mro__} - {""}
        if package and own and package not in own:
            of = f"is a transport of {min(own)}, and the client that it is in is one of {package}"
            raise ConfigurationError(f"{self._transport!r} {of}: {right}")
        if request is not None:
            self._served.add(is_async)

    def __enter__(self) -> Self:
        self._check_client(None, is_async=False)
        self._transport.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        self._check_client(None, is_async=True)
        await self._transport.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def _package(kind: type) -> str:
    """The package of a class, if that is httpx or httpx2."""
    name = kind.__module__.partition(".")[0]
    return name if name in ("httpx", "httpx2") else ""


def require_count(what: str, count: object, least: int) -> None:
    """Raise ``ConfigurationError`` for anything but a whole number of at least so many."""
    require_number(f"{what} must be a whole number of at least {least}", count, least, math.inf, f"{what}=3", int)
