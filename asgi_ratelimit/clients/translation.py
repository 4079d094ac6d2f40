"""Requests and answers of other clients, in the form in which ``PacedTransport`` reads those of httpx.

So the flow is the same for all clients: places, slots, pauses, retries and settlements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self, TypedDict

from ..hooks import Hook
from ..outbound import require_functions_of_request
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


@dataclass(slots=True)
class Url:
    """The destination of a request."""

    host: str


class WholeBody:
    """The body of a request that can be sent again, because all of it is at hand."""

    can_be_read_twice = True


@dataclass(slots=True)
class ForwardedRequest:
    """A request of another client, and ``send``, which sends it."""

    original: Any
    send: Callable[[Any], Any]
    url: Url
    stream: WholeBody | None
    extensions: Mapping[str, Any] = field(default_factory=dict)


class Body:
    """The body of an answer: it yields what the client has just read, so that a wrapper of the body sees it."""

    def __init__(self) -> None:
        self.chunk = b""

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        if not self.chunk:
            raise StopIteration
        chunk, self.chunk = self.chunk, b""
        return chunk

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if not self.chunk:
            raise StopAsyncIteration
        return next(self)

    def close(self) -> None:
        """The client closes its own body."""

    async def aclose(self) -> None:
        """The client closes its own body."""


@dataclass
class ForwardedAnswer:
    """An answer of another client; subclasses say how it is read and closed."""

    original: Any
    status_code: int
    headers: Mapping[str, str]
    is_closed: bool = False
    content: bytes = b""
    """Of an answer that is closed."""

    def __post_init__(self) -> None:
        self.body = Body()
        self.stream: Any = self.body
        self.extensions: dict[str, Any] = {}

    def released(self) -> tuple[Any, Any]:
        """The original answer, and its body if somebody needs to know what is read of it, or when it is closed.

        Nothing here refers to them from now on, so that both are deleted when the client drops the answer.
        """
        original, stream = self.original, self.stream
        self.original = self.stream = None
        return original, None if stream is self.body else stream


def for_original(what: str, option: Any) -> Any:
    """A key or a cost for forwarded requests, where functions take the original ones.

    Raises ``ConfigurationError`` for a function that cannot be one of a request.
    """
    require_functions_of_request(what, option)
    return _for_original(option)


def _for_original(option: Any) -> Any:
    if isinstance(option, Mapping):
        return {name: _for_original(value) for name, value in option.items()}
    if hasattr(option, "learn"):
        return LearnedFromOriginal(option)
    return (lambda request: option(request.original)) if callable(option) else option


@dataclass(slots=True)
class LearnedFromOriginal:
    """A cost that learns from the original requests."""

    cost: Any

    def __call__(self, request: ForwardedRequest) -> Any:
        return self.cost(request.original)

    def learn(self, request: ForwardedRequest, charged: Any, actual: Any) -> None:
        """Pass on what a request really cost."""
        self.cost.learn(request.original, charged, actual)
