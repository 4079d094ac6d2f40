"""Decisions of limiters, paced calls and transports are counted, and published without being asked for."""

from __future__ import annotations

from asyncio import _get_running_loop

from ..clock import SystemClock
from ..counts import Counts, counts_of, publish, publish_on, reset_publishers
from ..decision import Decision, Take
from ..stores import Store
from ..waiting import background_loop
from ..waiting.forks import reset_in_child
from ..waiting.slots.slot import Slot


class CallCounts:
    """Counts the decisions of calls on one store, each for the names of its charges."""

    __slots__ = ("_counts", "_store")

    def __init__(self, store: Store) -> None:
        self._store = store
        self._counts = counts_of(store)

    def count(self, decision: Decision) -> None:
        """Count a decision."""
        take, is_plain = decision.take, decision.allowed and not (decision.degraded or decision.shadow)
        if is_plain and take is not None and len(take.charges) == 1:
            charge = take.charges[0]
            rule = self._counts[charge.name or ""]
            rule.requests.append(charge.bucket)
            rule.admitted += 1
        else:
            self._counts.count((decision,))
        if not self._counts.is_published:
            _publish(self._store, self._counts)

    def count_slot(self, take: Take, slot: Slot) -> None:
        """Count a call that leaves at its slot; where nobody has read a decision, none is made for that."""
        if type(slot.booked) is not tuple:
            self.count(slot.decision)
            return
        charge = take.charges[0]
        rule = self._counts[charge.name or ""]
        rule.requests.append(charge.bucket)
        rule.admitted += 1
        if not self._counts.is_published:
            _publish(self._store, self._counts)


def _publish(store: Store, counts: Counts) -> None:
    """See to it that what is counted is published, once a second.

    For a store elsewhere, the background loop does so, which watches its overrides as well; no event loop of the
    program lives long enough for sure. In memory, the running event loop does. Where there is none, and for a stepped
    clock, which must not go on because of that, whoever reads the figures publishes them first.
    """
    clock = getattr(store, "clock", None)
    if getattr(store, "documents", None) is None or not isinstance(clock or SystemClock(), SystemClock):
        counts.is_published = True
    elif not store.in_process:
        publish_on(store, background_loop.loop())
    elif _get_running_loop() is not None:
        publish(store)


class _InChild:
    """Publishes nothing in a forked child that its parent has counted."""

    def reset(self) -> None:
        reset_publishers()


_in_child = _InChild()
reset_in_child(_in_child)
