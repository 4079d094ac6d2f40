"""Costs that are known only afterwards: taken as an estimate, and settled at the end of a block, however it ends."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractContextManager
from functools import partial
from types import TracebackType
from typing import Any

from ..decision import Decision, Take
from ..hooks.calling import ObservedWait
from ..stores import Store, settle
from ..stores.event_loops import running_loop
from ..waiting import CallStore, Flow, GiveBack, Renewed, run_async, run_sync, unchanged
from .charges import Cost, actual_units, charged_units, settled_units
from .spend_waiter import SpendWaiter


class Spent:
    """The take of a block, as its ``decision``, and its actual cost so far."""

    def __init__(self, decision: Decision) -> None:
        self.decision = decision
        self.actual = charged_units(decision)
        """The units of each charge that the end of the block settles."""
        self.is_over = False
        """Whether the block has ended."""

    def settle(self, actual: Cost | None = None, **units: float) -> None:
        """Set the actual cost so far, for the named quotas, ``settle(tokens=1234)``, or for every quota.

        Names that are not Python identifiers go in a mapping, ``settle({"per-minute": 5})``. A later call overrides an
        earlier one. Raises ``ValueError`` for an unknown name or a number that is not valid, and for one number, except
        0, where the estimate has different ones, or after the block.
        """
        if self.is_over:
            raise ValueError("the block has ended, and its cost is settled: call spent.settle(tokens=1234) within it")
        if actual is not None and not isinstance(actual, Mapping):
            self.actual = actual_units(self.decision, actual, self.actual)
        named = {**(actual if isinstance(actual, Mapping) else {}), **units}
        self.actual = settled_units(self.decision, named, self.actual)


class Spending:
    """The context manager of ``Limiter.spend``, with and without ``async``; it waits when it is entered."""

    def __init__(
        self,
        store: Store,
        take: Take,
        waiting_call: Callable[[], AbstractContextManager[ObservedWait]],
        count: Callable[[Take], Coroutine[Any, Any, Decision]] | None = None,
        renewed: Renewed = unchanged,
    ) -> None:
        """``count`` decides a take without a wait, if an override lets everything pass.

        ``renewed`` returns a take under the quotas that now apply.
        """
        self._store = store
        self._count = count
        self._waiter = SpendWaiter(store, renewed=renewed)
        self._take = take
        self._waiting_call = waiting_call
        self._entered: list[Spent] = []

    async def __aenter__(self) -> Spent:
        running_loop("spend with async", "enter a block of SyncLimiter.spend in a thread, by trio.to_thread.run_sync")
        return await run_async(self._wait())

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await run_async(self._settle())

    def __enter__(self) -> Spent:
        return run_sync(self._wait())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        run_sync(self._settle())

    def _wait(self) -> Flow[Spent]:
        if self._count is not None:
            counted: Decision = yield CallStore(self._store, self._count(self._take))
            self._entered.append(Spent(counted))
            return self._entered[-1]
        with self._waiting_call() as wait:
            wait.decision = yield from self._waiter.wait(self._take)
        self._entered.append(Spent(wait.decision))
        return self._entered[-1]

    def _settle(self) -> Flow[None]:
        spent = self._entered.pop()
        spent.is_over = True
        try:
            if spent.actual != charged_units(spent.decision) or spent.decision.take.operation is not None:
                yield GiveBack(self._store, partial(settle, self._store, spent.decision, spent.actual))
        finally:
            if self._count is None:
                self._waiter.finish(self._take)
