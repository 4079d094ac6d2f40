"""``PacedTransport``: requests of httpx and httpx2 that wait for their slots."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from ..decision import Take
from ..errors import ConfigurationError
from ..limiter import Cost, Key, UnownedLimiter
from ..quota_text import QuotaLike, as_quotas
from ..quotas import SECOND_US
from ..stores import Store
from ..waiting import background_loop, run_async, run_sync
from .bodies import with_close_callback
from .decorator import EVEN_BURST, register_name
from .sending import PacedRequest, Sender, SentRequest

if TYPE_CHECKING:  # clients are typed with these classes, but any object with the same methods works
    import httpx
    import httpx2

    class _Transport(httpx.BaseTransport, httpx.AsyncBaseTransport, httpx2.BaseTransport, httpx2.AsyncBaseTransport):
        def handle_request(self, request: Any) -> Any: ...
        async def handle_async_request(self, request: Any) -> Any: ...
else:
    _Transport = object

KeyOfRequest: TypeAlias = Key | Callable[[Any], Key | None]
CostOfRequest: TypeAlias = Cost | Callable[[Any], Cost]

NAME = "outbound"
OPTIONS = {"key", "cost", "max_delay"}
"""The options of one request: ``extensions={"pace": {"cost": 3}}``."""


def host(request: Any) -> str:
    """The host that a request goes to: the default key of a ``PacedTransport``."""
    name: str = request.url.host
    return name


class PacedTransport(_Transport):
    """A transport for httpx and httpx2, in clients with and without ``async``, whose requests keep to ``quota``.

    It wraps any ``transport``. ``key`` and ``cost`` are values, or functions of the request; a request whose key is
    ``None`` goes at once. ``max_delay`` is the longest that a request waits in all, in seconds; ``PaceTimeout`` is
    raised if that is not enough. At most ``concurrency`` requests of a key are under way at a time, each until its body
    is closed. A 429 or 503 with ``Retry-After`` pauses its key in all processes that share the ``store``. A request is
    sent again up to ``retries`` times, if its whole body is at hand. A redirect and a retry each cost as much as a
    request.

    A request may have its own options, ``extensions={"pace": {"cost": 3, "max_delay": 2.0, "key": "other"}}``. An
    answer reports in ``extensions["pace"]`` how many seconds it ``waited`` and how many ``attempts`` it took.
    Raises ``QuotaError`` and ``ConfigurationError``.
    """

    def __init__(
        self,
        transport: Any,
        quota: QuotaLike,
        *,
        key: KeyOfRequest = host,
        cost: CostOfRequest = 1,
        max_delay: float | None = None,
        concurrency: int | None = None,
        retries: int = 0,
        store: Store | str | None = None,
        name: str | None = None,
    ) -> None:
        quotas = as_quotas(quota, default_burst=EVEN_BURST)
        self._transport = transport
        self._limiter = UnownedLimiter(quotas, store=store, name=NAME if name is None else name)
        if name is not None:
            register_name(self._limiter, self)
        self._owns_store = store is None or isinstance(store, str)
        self._options: dict[str, Any] = {"key": key, "cost": cost, "max_delay": max_delay}
        _require_count("concurrency", 1 if concurrency is None else concurrency, 1)
        _require_count("retries", retries, 0)
        Take(self._limiter.charges(""), math.inf if max_delay is None else max_delay)  # raises at once
        self._sender = Sender(transport, self._limiter, concurrency, retries)

    def __repr__(self) -> str:
        return f"PacedTransport({self._transport!r}, {self._limiter.quotas!r})"

    def handle_request(self, request: Any) -> Any:
        """Send a request at its slot."""
        paced = self._paced(request)
        if paced is None:
            return self._transport.handle_request(request)
        return self._response(run_sync(self._sender.send(paced)), paced)

    async def handle_async_request(self, request: Any) -> Any:
        """Send a request at its slot."""
        paced = self._paced(request)
        if paced is None:
            return await self._transport.handle_async_request(request)
        return self._response(await run_async(self._sender.send(paced)), paced)

    def close(self) -> None:
        """Close the wrapped transport, and the store if it was opened here."""
        self._transport.close()
        if self._owns_store and not self._limiter.store.in_process:
            background_loop.run(self._limiter.aclose())

    async def aclose(self) -> None:
        """Close the wrapped transport, and the store if it was opened here."""
        await self._transport.aclose()
        if self._owns_store:
            await self._limiter.aclose()

    def __enter__(self) -> Self:
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
        await self._transport.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        await self.aclose()

    def _paced(self, request: Any) -> PacedRequest | None:
        """A request with its take and its deadline; ``None`` if it is not paced."""
        own = request.extensions.get("pace", {})
        if not isinstance(own, Mapping) or set(own) - OPTIONS:
            raise ValueError(f'"pace": {own!r} is not understood: extensions={{"pace": {{"cost": 3, "key": "other"}}}}')
        key, cost, max_delay = ({**self._options, **own}[option] for option in ("key", "cost", "max_delay"))
        key = key(request) if callable(key) else key
        if key is None:
            return None
        charges = self._limiter.charges(key, cost(request) if callable(cost) else cost)
        take = Take(charges, math.inf if max_delay is None else max_delay)
        return PacedRequest(request, take, self._sender.waiter.now_us() + take.max_wait * SECOND_US)

    def _response(self, sent: SentRequest, paced: PacedRequest) -> Any:
        response = sent.response
        response.extensions = {**response.extensions, "pace": {"waited": sent.waited, "attempts": sent.attempts}}
        if response.is_closed:  # its body is at hand, and nobody will close it again
            self._sender.finish(paced)
        elif self._sender.limits_concurrency:
            response.stream = with_close_callback(response.stream, partial(self._sender.finish, paced))
        return response


def _require_count(what: str, count: object, least: int) -> None:
    if not isinstance(count, int) or isinstance(count, bool) or count < least:
        raise ConfigurationError(f"{what} must be a whole number of at least {least}, not {count!r}: {what}=3")
