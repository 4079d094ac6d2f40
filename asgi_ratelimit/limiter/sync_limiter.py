"""Limiters for code without ``async``."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from types import TracebackType
from typing import Any, TypeVar

from ..argument_errors import OF_LIMITERS, shows_use
from ..buckets import DEFAULT_NAME
from ..decision import Charge, Decision
from ..hooks import Hook
from ..quota_text import QuotaLike
from ..stores import Store
from ..waiting import background_loop, run_sync
from .charges import Cost, Key
from .limiter import Limiter
from .spending import Spending
from .tickets import Ticket

T = TypeVar("T")


class SyncLimiter:
    """``Limiter`` for code without ``async``: its methods block their thread if the store is remote.

    All threads of a process share one event loop in the background, and so the store's connections.
    """

    @shows_use('SyncLimiter("10/s burst 20", store="redis://localhost", name="api")', **OF_LIMITERS)
    def __init__(
        self,
        quota: QuotaLike,
        *,
        store: Store | str | None = None,
        name: str = DEFAULT_NAME,
        hooks: Iterable[Hook] = (),
    ) -> None:
        self._limiter = Limiter(quota, store=store, name=name, hooks=hooks)
        self._run = background_loop.run_in_place if self._limiter.store.in_process else background_loop.run

    def __repr__(self) -> str:
        return f"Sync{self._limiter!r}"

    def rate_limit(
        self, key: Key, cost: Cost = 1, *, best_effort: bool = False, operation: str | None = None
    ) -> Decision:
        """See ``Limiter.rate_limit``."""
        return self._do(self._limiter.rate_limit(key, cost, best_effort=best_effort, operation=operation))

    def pace(
        self, key: Key, cost: Cost = 1, *, max_delay: float | None = None, operation: str | None = None
    ) -> Decision:
        """See ``Limiter.pace``: it books, and does not sleep."""
        return self._do(self._limiter.pace(key, cost, max_delay=max_delay, operation=operation))

    def acquire(
        self, key: Key, cost: Cost = 1, *, max_delay: float | None = None, operation: str | None = None
    ) -> Decision:
        """See ``Limiter.acquire``: it blocks the thread until its slot has come."""
        return run_sync(self._limiter.acquiring(key, cost, max_delay, operation))

    def peek(self, key: Key, cost: Cost = 1) -> Decision:
        """See ``Limiter.peek``."""
        return self._do(self._limiter.peek(key, cost))

    def refund(self, decision: Decision, cost: Cost | None = None) -> None:
        """See ``Limiter.refund``."""
        self._do(self._limiter.refund(decision, cost))

    def settle(self, decision: Decision, actual: Cost) -> None:
        """See ``Limiter.settle``."""
        self._do(self._limiter.settle(decision, actual))

    def cancel(self, booked: Decision | Ticket) -> None:
        """See ``Limiter.cancel``."""
        self._do(self._limiter.cancel(booked))

    def waiting(self, key: Key) -> float:
        """See ``Limiter.waiting``."""
        return self._do(self._limiter.waiting(key))

    def eta(self, key: Key, cost: Cost = 1) -> float:
        """See ``Limiter.eta``."""
        return self._do(self._limiter.eta(key, cost))

    def reserve(self, key: Key, cost: Cost = 1, *, operation: str | None = None) -> Ticket:
        """See ``Limiter.reserve``."""
        return self._do(self._limiter.reserve(key, cost, operation=operation))

    def redeem(self, ticket: Ticket | str, *, late_tolerance: float = 5.0) -> Decision:
        """See ``Limiter.redeem``."""
        return self._do(self._limiter.redeem(ticket, late_tolerance=late_tolerance))

    def spend(self, key: Key, costs: Cost, *, max_delay: float | None = None, operation: str | None = None) -> Spending:
        """See ``Limiter.spend``: ``with ... as spent``."""
        return self._limiter.spend(key, costs, max_delay=max_delay, operation=operation)

    def reset(self, key: Key) -> None:
        """See ``Limiter.reset``."""
        self._do(self._limiter.reset(key))

    def take(self, charges: Iterable[Charge], max_wait: float = 0.0) -> Decision:
        """See ``Limiter.take``."""
        return self._do(self._limiter.take(charges, max_wait))

    def close(self) -> None:
        """Close the store; ``with SyncLimiter(...) as limiter`` does it at the end of the block.

        That includes a store that was passed in and that others use. The next take of any of them opens it again.
        """
        self._limiter.close_hooks()
        self._do(self._limiter.store.aclose())

    def __enter__(self) -> SyncLimiter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _do(self, call: Coroutine[Any, Any, T]) -> T:
        return self._run(call)
