"""What transports for clients of httpx and httpx2 have in common."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ..errors import ConfigurationError
from .wrapped import checked_transport, of_other_clients, sends, sends_with_async

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
    _sends: bool
    _sends_with_async: bool
    _example: str

    def _wrap(self, transport: Any, example: str) -> None:
        """Wrap a transport, as in ``example``. Raises ``ConfigurationError`` for anything else."""
        self._transport = checked_transport(transport, example)
        self._sends, self._sends_with_async = sends(transport), sends_with_async(transport)
        self._example = example

    def _in_wrong_client(self, is_async: bool) -> ConfigurationError:
        """The error for a client that the wrapped transport cannot serve."""
        return of_other_clients(self._transport, self._example, is_async)

    def __enter__(self) -> Self:
        if not self._sends:
            raise self._in_wrong_client(is_async=False)
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
        if not self._sends_with_async:
            raise self._in_wrong_client(is_async=True)
        await self._transport.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        await self.aclose()
