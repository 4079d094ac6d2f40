"""Costs that are known only afterwards: taken as an estimate, and settled when all is over, however it ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType

from ..decision import Decision, Take
from ..errors import PaceTimeout
from ..stores import Store, settle
from ..waiting import Flow, Turns, run_async, run_sync
from ..waiting.drivers import GiveBack
from .charges import Cost, charged, costs_of


class Spent:
    """What has been taken, by its ``decision``, and what it has come to so far."""

    def __init__(self, decision: Decision) -> None:
        self.decision = decision
        self.actual = charged(decision)
        """The units of each charge that will be settled at the end."""

    def settle(self, actual: Cost | None = None, **units: float) -> None:
        """Say what has been used so far of the quotas that are named, ``settle(tokens=1234)``, or of every one.

        Names that are no words of Python go in a mapping, ``settle({"per-minute": 5})``. What is said later counts.
        Raises ``ValueError`` for a name or a number that cannot be.
        """
        if actual is not None and not isinstance(actual, Mapping):
            self.actual = costs_of(self.decision, actual, self.actual)
        self.actual = costs_of(self.decision, {**(actual if isinstance(actual, Mapping) else {}), **units}, self.actual)


class Spending:
    """What ``Limiter.spend`` makes: a context, with ``async`` or without, that waits when it is entered."""

    def __init__(self, store: Store, take: Take, told: Callable[[Decision], Decision]) -> None:
        self._store = store
        self._take = take
        self._told = told
        self._spent: list[Spent] = []

    async def __aenter__(self) -> Spent:
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
        try:
            decision = yield from Turns(self._store).wait(self._take)
        except PaceTimeout as error:
            self._told(error.decision)
            raise
        self._spent.append(Spent(self._told(decision)))
        return self._spent[-1]

    def _settle(self) -> Flow[None]:
        spent = self._spent.pop()
        if spent.actual != charged(spent.decision):
            yield GiveBack(self._store, settle(self._store, spent.decision, spent.actual))
