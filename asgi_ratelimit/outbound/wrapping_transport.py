"""The common base of transports for clients of httpx and httpx2."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from .transport_checks import checked_transport, require_client

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

    _transport: Any
    _serves: bool
    """Whether a request has shown that the client is of the right kind, for a client without ``async``."""
    _serves_async: bool
    _example: str

    def _wrap(self, transport: Any, example: str) -> None:
        """Wrap a transport, as in ``example``. Raises ``ConfigurationError`` for anything else."""
        self._transport = checked_transport(transport, example)
        self._serves = self._serves_async = False
        self._example = example

    def _check_client(self, request: Any, is_async: bool) -> None:
        """Check the client at its first request. Raises ``ConfigurationError`` for one that cannot be served."""
        require_client(self._transport, self._example, is_async, request)
        if is_async:
            self._serves_async = True
        else:
            self._serves = True

    def __enter__(self) -> Self:
        require_client(self._transport, self._example, is_async=False)
        self._transport.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        require_client(self._transport, self._example, is_async=True)
        await self._transport.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        await self.aclose()
