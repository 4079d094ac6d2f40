"""Calls that check a remote store for pauses when their slots have come, and leave in the order of its answers.

They are counted when they leave. If they were counted before the store answers, calls that pile up while it stalls
would leave together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...clock import Clock, time_of
from ...decision import Charge
from ..concurrency import ConcurrencyLimit
from ..flow_drivers import Flow, NewWakeUp, Sleep
from ..wakeups import BucketWakeUps, WakeUp
from .slot_queues import SlotQueues


class Departures:
    """Waits until calls over one store may leave: one at a time for each bucket, in the order in which they came."""

    def __init__(
        self, queues: SlotQueues, departing: ConcurrencyLimit, settled: BucketWakeUps, margin: float = 0.0
    ) -> None:
        self._queues = queues
        self._departing = departing
        self._settled = settled
        self._margin = margin

    def try_depart(self, charges: Sequence[Charge], now_us: float, ahead_us: float) -> bool:
        """Record that a call leaves now, and return true; or return false if others wait, or it may not leave yet."""
        return not self._departing and self._queues.depart(charges, now_us, ahead_us, self._margin) == 0.0

    def wait(self, charges: Sequence[Charge], clock: Clock | None, ahead_us: float) -> Flow[None]:
        """Wait until a call may leave, behind the other calls of its first bucket, and record that it leaves."""
        bucket = charges[0].bucket
        place = yield from self._departing.wait_and_enter(bucket, clock, math.inf)
        assert place is not None  # it has no deadline
        try:
            yield from self._wait_as_first(charges, clock, ahead_us)
        finally:
            self._departing.leave(place)

    def _wait_as_first(self, charges: Sequence[Charge], clock: Clock | None, ahead_us: float) -> Flow[None]:
        wake_up: WakeUp = yield NewWakeUp(clock)
        now, buckets = time_of(clock), [charge.bucket for charge in charges]
        self._settled.add(buckets, wake_up)
        try:
            while True:
                wake_up.set(math.inf)
                now_us = now()
                wait_us = self._queues.depart(charges, now_us, ahead_us, self._margin)
                if wait_us == 0.0:
                    return
                self._settled.set(wake_up, now_us + wait_us)
                yield Sleep(wake_up)
        finally:
            self._settled.remove(buckets, wake_up)
