"""Callers that wait, with and without ``async``: for a slot, for their own keys, or for a place under a limit."""

from .concurrency import ConcurrencyLimit
from .drivers import (
    INTERRUPTED,
    CallStore,
    Flow,
    GiveBack,
    WakeUp,
    background_loop,
    reset_in_child,
    run_async,
    run_in_place,
    run_sync,
    sleep,
    take_all,
)
from .queues import Slot
from .waiter import (
    PaceTimeout,
    Renewed,
    Row,
    SlotWaiter,
    outbound_sources,
    pace_timeout,
    too_late,
    unchanged,
    waiters_of,
)

__all__ = [
    "INTERRUPTED",
    "CallStore",
    "ConcurrencyLimit",
    "Flow",
    "GiveBack",
    "PaceTimeout",
    "Renewed",
    "Row",
    "Slot",
    "SlotWaiter",
    "WakeUp",
    "background_loop",
    "outbound_sources",
    "pace_timeout",
    "reset_in_child",
    "run_async",
    "run_in_place",
    "run_sync",
    "sleep",
    "take_all",
    "too_late",
    "unchanged",
    "waiters_of",
]
