"""``AdaptiveTransport``: requests of httpx and httpx2 that keep to the limits that their servers report."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

from ...argument_errors import shows_use
from ...counts import Row, outbound_sources
from ...errors import ConfigurationError
from ...headers import MAX_DELAY
from ...hooks import ChangeHook
from ...limiter import Limiter, as_store, publish_counts
from ...profiles import Profile, named
from ...quota_text import QuotaLike, as_quotas
from ...stores import Store
from ...stores.event_loops import running_loop
from ...waiting import SlotWaiter, background_loop, run_async, run_sync
from ..pace_decorator import EVEN_BURST
from ..wrapping_transport import WrappingTransport
from .adaptive_sender import AdaptiveSender
from .admission import NAME
from .learned_state import LearnedBucket


class AdaptiveTransport(WrappingTransport):
    """A transport for httpx and httpx2, with and without ``async``, that learns the limits of each server it talks to.

    The first request to an unknown bucket goes alone. The others wait for its answer. Then as many go at once as there
    are units left, and the rest when there are more. ``profile`` says how to read the answers; by default, it is
    recognised. After a refusal, all requests of its bucket wait, and the refused request is sent again, at most
    ``retries`` times, if its whole body is at hand.

    ``quota`` is the most that each host gets, whatever its answers say. Processes that share a ``RedisStore`` share the
    quota, the remaining units of each bucket, and pauses; only one request of all of them goes first to an unknown
    bucket. ``max_delay`` is the longest total wait of a request in seconds, 900 by default; ``PaceTimeout`` is raised
    at once if that is certainly too short. ``hooks`` are functions that are called with each ``LimitChange``.

    An answer reports in ``extensions["pace"]`` how many seconds it ``waited`` and how many ``attempts`` it took.
    Raises ``QuotaError`` and ``ConfigurationError``.
    """

    @shows_use('AdaptiveTransport(httpx.AsyncHTTPTransport(), quota="50/s")')
    def __init__(
        self,
        transport: Any,
        *,
        profile: Profile | str = "auto",
        quota: QuotaLike | None = None,
        store: Store | str | None = None,
        retries: int = 1,
        max_delay: float | None = None,
        hooks: Iterable[ChangeHook] = (),
    ) -> None:
        self._wrap(transport, "AdaptiveTransport({})")
        if not isinstance(retries, int) or isinstance(retries, bool) or retries < 0:
            raise ConfigurationError(f"retries must be a whole number of at least 0, not {retries!r}: retries=1")
        longest = MAX_DELAY if max_delay is None else max_delay
        if not isinstance(longest, int | float) or not 0 <= longest < math.inf:
            raise ConfigurationError(f"max_delay must be seconds from 0 up, not {max_delay!r}: max_delay=60.0")
        self._profile = named(profile)
        self._owns_store = store is None or isinstance(store, str)
        self._store = as_store(store)
        limiter = None
        if quota is not None:
            limiter = Limiter(as_quotas(quota, default_burst=EVEN_BURST), store=self._store, name=NAME)
        slots = SlotWaiter(self._store, departs_later=True)
        self._sender = AdaptiveSender(transport, self._profile, slots, limiter, retries, longest, hooks)
        outbound_sources.add(self)

    def __repr__(self) -> str:
        return f"AdaptiveTransport({self._transport!r}, profile={self._profile.name!r})"

    def state(self) -> tuple[LearnedBucket, ...]:
        """The buckets that were learned: the units left, how many requests wait for each, and for how long."""
        return self._sender.state()

    def outbound_rows(self) -> Iterator[Row]:
        """The rows that are published: one for each bucket."""
        for bucket in self.state():
            yield {
                "host": bucket.host,
                "name": bucket.name,
                "limit": bucket.limit,
                "remaining": bucket.remaining,
                "under_way": bucket.under_way,
                "waiting": bucket.waiting,
                "paused_for": round(bucket.paused_for),
            }

    def handle_request(self, request: Any) -> Any:
        """Send a request when its server's limits allow it."""
        if not self._serves:
            self._check_client(request, is_async=False)
        publish_counts(self._store)
        return run_sync(self._sender.send(request))

    async def handle_async_request(self, request: Any) -> Any:
        """Send a request when its server's limits allow it."""
        if not self._serves_async:
            self._check_client(request, is_async=True)
        running_loop("AdaptiveTransport with async", "use httpx.Client in a thread, by trio.to_thread.run_sync")
        publish_counts(self._store)
        return await run_async(self._sender.send(request))

    def close(self) -> None:
        """Close the wrapped transport, and the store if it was opened here."""
        try:
            self._transport.close()
        finally:
            if self._owns_store and not self._store.in_process:
                background_loop.run(self._store.aclose())

    async def aclose(self) -> None:
        """Close the wrapped transport, and the store if it was opened here."""
        try:
            await self._transport.aclose()
        finally:
            if self._owns_store:
                await self._store.aclose()
