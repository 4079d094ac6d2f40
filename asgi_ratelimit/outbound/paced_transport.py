"""``PacedTransport``: requests of httpx and httpx2 that wait for their slots."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..errors import shows_use
from ..hooks import Hook
from ..quota_text import QuotaLike
from ..stores import Store
from ..waiting.drivers import Flow
from .exchange import Send
from .outbound_limiter import OutboundLimiter
from .request_values import CostOfRequest, KeyOfRequest, Oversize, RequestValues, Settle, Settler
from .sender import Sender
from .wrapping_transport import WrappingTransport, require_count

NAME = "outbound"


def host(request: Any) -> str:
    """The host that a request goes to: the default key of a ``PacedTransport``."""
    return str(request.url.host)


class PacedTransport(WrappingTransport):
    """A transport for httpx and httpx2, in clients with and without ``async``, whose requests keep to ``quota``.

    It wraps any ``transport``. ``key`` and ``cost`` are values, functions of the request, or mappings of these by
    the names of the quotas; a request whose key is ``None`` goes at once. ``max_delay`` is the longest total wait
    of a request in seconds; ``PaceTimeout`` is raised if that is not enough. At most ``concurrency`` requests of a
    key are under way at a time, in all processes that share the ``store``, each until its body is closed.
    ``settle(answer)`` returns the actual cost of a request. A cost above the burst waits for a full bucket; with
    ``oversize="raise"``, it raises ``ValueError``. ``margin`` is the part of every limit that stays unused, for a
    service that counts more strictly than it says.

    A 429 or 503 with ``Retry-After`` pauses its key in all processes that share the ``store``. If jitter explains the
    refusal, it only slows the key down a little. A request is sent again up to ``retries`` times, if its whole body is
    at hand. A redirect and a retry each cost as much as a request. ``hooks`` are called with every decision.

    A request may have its own options, ``extensions={"pace": {"cost": 3, "max_delay": 2.0, "key": "other"}}``. An
    answer reports in ``extensions["pace"]`` how many seconds the request ``waited`` and how many ``attempts`` it took,
    even if it went at once because its key is ``None``.
    Raises ``QuotaError``, ``ConfigurationError``, and ``ValueError`` or ``TypeError`` for an invalid key or cost.
    """

    @shows_use('PacedTransport(httpx.AsyncHTTPTransport(), "20/s burst 5")')
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
        settle: Settle | None = None,
        oversize: Oversize = "wait",
        margin: float = 0.0,
        store: Store | str | None = None,
        name: str | None = None,
        hooks: Iterable[Hook] = (),
    ) -> None:
        self._wrap(transport, 'PacedTransport({}, "20/s")')
        self._limiter = limiter = OutboundLimiter(quota, margin, name, NAME, store=store, hooks=hooks)
        self._store, self._hooks = limiter.store, limiter.hooks
        self._owns_store = store is None or isinstance(store, str)
        require_count("concurrency", 1 if concurrency is None else concurrency, 1)
        require_count("retries", retries, 0)
        self._values = RequestValues(limiter, key, cost, max_delay, oversize)
        settler = None if settle is None else Settler(settle, cost, limiter)
        self._sender = Sender(transport, limiter, concurrency, retries, settler)

    def __repr__(self) -> str:
        return f"PacedTransport({self._transport!r}, {self._limiter.quotas!r})"

    def _send(self, request: Any) -> Flow[Any]:
        paced = self._values.paced(request, request.extensions.get("pace"))
        if paced is None:
            response = yield Send(self._transport, request)  # which another transport within this one may have paced
            response.extensions = {"pace": {"waited": 0.0, "attempts": 1}, **response.extensions}
            return response
        return (yield from self._sender.send(paced))
