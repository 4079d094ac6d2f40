"""Limiters for code without ``async``."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from ..argument_errors import shows_use
from ..buckets import DEFAULT_NAME
from ..decision import Decision
from ..hooks import Hook
from ..quota_text import QuotaLike
from ..stores import Store
from ..waiting import background_loop, run_in_place, run_sync
from .charges import Cost, Key
from .limiter import Limiter
from .spending import Spending

P = ParamSpec("P")
T = TypeVar("T")


def _blocking(
    method: Callable[Concatenate[Limiter, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[SyncLimiter, P], T]:
    """A method of ``Limiter`` without ``async``."""

    @wraps(method)
    def blocking(self: SyncLimiter, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._run(method(self._limiter, *args, **kwargs))

    return blocking  # type: ignore[return-value]  # a function is bound to its instance


class SyncLimiter:
    """``Limiter`` for code without ``async``: the same methods, which block their thread if the store is remote.

    ``acquire`` and the block of ``spend`` also block it until their slot has come, and ``close`` stands for ``aclose``.
    All threads of a process share one event loop in the background, and so the store's connections.
    """

    @shows_use('SyncLimiter("10/s burst 20", store="redis://localhost", name="api")')
    def __init__(
        self,
        quota: QuotaLike,
        *,
        store: Store | str | None = None,
        name: str = DEFAULT_NAME,
        hooks: Iterable[Hook] = (),
    ) -> None:
        self._limiter = Limiter(quota, store=store, name=name, hooks=hooks)
        self._run = run_in_place if self._limiter.store.in_process else background_loop.run

    def __repr__(self) -> str:
        return f"Sync{self._limiter!r}"

    rate_limit = _blocking(Limiter.rate_limit)
    pace = _blocking(Limiter.pace)
    peek = _blocking(Limiter.peek)
    refund = _blocking(Limiter.refund)
    settle = _blocking(Limiter.settle)
    cancel = _blocking(Limiter.cancel)
    waiting = _blocking(Limiter.waiting)
    eta = _blocking(Limiter.eta)
    reserve = _blocking(Limiter.reserve)
    redeem = _blocking(Limiter.redeem)
    reset = _blocking(Limiter.reset)
    take = _blocking(Limiter.take)

    def acquire(
        self, key: Key, cost: Cost = 1, *, max_delay: float | None = None, operation: str | None = None
    ) -> Decision:
        """See ``Limiter.acquire``: it blocks the thread until its slot has come."""
        return run_sync(self._limiter.acquiring(key, cost, max_delay, operation))

    def spend(self, key: Key, costs: Cost, *, max_delay: float | None = None, operation: str | None = None) -> Spending:
        """See ``Limiter.spend``: ``with ... as spent``."""
        return self._limiter.spend(key, costs, max_delay=max_delay, operation=operation)

    def close(self) -> None:
        """Close the store; ``with SyncLimiter(...) as limiter`` does it at the end of the block.

        That includes a store that was passed in and that others use. The next take of any of them opens it again.
        """
        self._limiter.hooks.close()
        self._run(self._limiter.store.aclose())

    def __enter__(self) -> SyncLimiter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
