"""Requests and answers of other clients, in the form in which ``PacedTransport`` reads those of httpx.

So the flow is the same for all clients: places, slots, pauses, retries and settlements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict

from ..errors import ConfigurationError
from ..hooks import Hook
from ..stores import Store


class PacingOptions(TypedDict, total=False):
    """The options of ``PacedTransport`` that all clients share."""

    max_delay: float | None
    concurrency: int | None
    retries: int
    settle: Callable[[Any], Any] | None
    oversize: Literal["wait", "raise"]
    margin: float
    store: Store | str | None
    name: str | None
    hooks: Iterable[Hook]


def require_options(client: str, options: Mapping[str, Any]) -> None:
    """Raise ``ConfigurationError`` in the name of a client's class for an option that there is not."""
    for unknown in options.keys() - PacingOptions.__annotations__.keys():
        known = ", ".join(["key", "cost", *PacingOptions.__annotations__])
        raise ConfigurationError(f"{client} has the options {known}, and not {unknown!r}: retries=2")


@dataclass(slots=True)
class ForwardedRequest:
    """The ``original`` request of another client, and ``send``, which sends it.

    ``content`` is not ``None`` if it can be sent again, because its whole body is at hand.
    """

    original: Any
    send: Callable[[], Any]
    content: bytes | None
    extensions: Mapping[str, Any] = field(default_factory=dict)


class UnreadBody:
    """The body of an answer, which the client itself reads and closes."""

    def close(self) -> None: ...

    async def aclose(self) -> None: ...


@dataclass
class ForwardedAnswer:
    """An answer of another client, requests or, with ``async``, aiohttp."""

    original: Any
    status_code: int
    headers: Mapping[str, str]
    is_closed: bool = False
    content: bytes = b""
    """Of an answer that is closed."""
    stream: Any = field(default_factory=UnreadBody)
    extensions: dict[str, Any] = field(default_factory=dict)

    def close(self) -> None:
        """Close one of requests."""
        self.original.close()

    async def aclose(self) -> None:
        """Close one of aiohttp, whose connection stays."""
        self.original.release()

    def released(self) -> tuple[Any, Any]:
        """The original answer, and its body if somebody needs to know what is read of it, or when it is closed.

        Nothing here refers to them from now on, so that both are deleted when the client drops the answer.
        """
        original, stream = self.original, self.stream
        self.original = self.stream = None
        return original, None if isinstance(stream, UnreadBody) else stream
