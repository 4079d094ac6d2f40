"""The repayer charges one Redis with the outage ledger, in the background."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from ....clock import monotonic_us
from ....decision import Charge, Settlement
from ..script_actions import Repayment
from .ledger import OutageLedger

REPAID_TOGETHER = 60
"""The number of entries of the outage ledger that are sent to Redis at a time: few enough for one script call."""

REPAY_INTERVAL_US = 1_000_000.0
"""Microseconds between two looks for entries of the outage ledger while Redis answers."""

CLOSE_WITHIN = 5.0
"""The most seconds for which a node that closes charges Redis with the outage ledger."""


class Repayer:
    """Charges one Redis with the entries of the ledger whose buckets ``is_here`` accepts, in small batches.

    ``submit_all`` sends entries between the takes, and returns their answers. Each entry stays in the ledger until
    Redis has carried it out.
    """

    def __init__(
        self,
        ledger: OutageLedger,
        is_here: Callable[[Charge], bool],
        submit_all: Callable[[Sequence[Repayment | Settlement]], list[asyncio.Future[Any]]],
    ) -> None:
        self._ledger = ledger
        self._is_here = is_here
        self._submit_all = submit_all
        self._task: asyncio.Task[None] | None = None
        self._due_us = 0.0

    def start(self) -> None:
        """Send the entries, unless this is under way."""
        if self._ledger.has_entries and (self._task is None or self._task.done()):
            self._due_us = monotonic_us() + REPAY_INTERVAL_US
            self._task = asyncio.get_running_loop().create_task(self._repay(self._send_entries()))

    def start_if_due(self) -> None:
        """``start``, at most once a second: another event loop or node may have added entries."""
        if monotonic_us() >= self._due_us:
            self.start()

    def start_soon(self) -> None:
        """Let the next ``start_if_due`` start at once."""
        self._due_us = 0.0

    async def aclose(self) -> None:
        """Finish what is under way, within a few seconds."""
        if self._task is not None:
            await asyncio.wait([self._task], timeout=CLOSE_WITHIN)
            self._task.cancel()
            await asyncio.wait([self._task])

    def _send_entries(self) -> list[asyncio.Future[Any]]:
        return self._submit_all(self._ledger.collect(self._is_here, REPAID_TOGETHER))

    async def _repay(self, answers: Sequence[asyncio.Future[Any]]) -> None:
        """Send entries until none is left or one fails; settlements may add more meanwhile."""
        while answers:
            if any(isinstance(each, BaseException) for each in await asyncio.gather(*answers, return_exceptions=True)):
                return
            answers = self._send_entries()
