"""One exchange with the service: a request is sent, an answer is discarded; steps of a flow, in a task or a thread."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

SMALL_BODY = 65_536
"""The most bytes of an unwanted body that are read to keep its connection; for a larger body, the connection is
closed."""


@dataclass(slots=True)
class Send:
    """Send a request; the result is the answer."""

    transport: Any
    request: Any

    async def in_task(self) -> Any:
        return await self.transport.handle_async_request(self.request)

    def in_thread(self) -> Any:
        return self.transport.handle_request(self.request)


def unpaced(response: Any) -> Any:
    """An answer to a request that went at once; it says so, unless a transport that paced it has said otherwise."""
    response.extensions = {"pace": {"waited": 0.0, "attempts": 1}, **response.extensions}
    return response


@dataclass(slots=True)
class Discard:
    """Close an unwanted answer; with ``read``, a small body is read first, which keeps its connection open."""

    response: Any
    read: bool = True

    async def in_task(self) -> None:
        try:
            if self._is_worth_reading():
                await self.response.aread()
        finally:
            await self.response.aclose()

    def in_thread(self) -> None:
        try:
            if self._is_worth_reading():
                self.response.read()
        finally:
            self.response.close()

    def _is_worth_reading(self) -> bool:
        length = self.response.headers.get("content-length", "")
        return self.read and length.isdecimal() and int(length) <= SMALL_BODY
