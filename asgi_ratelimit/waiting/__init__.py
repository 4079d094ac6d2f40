"""Callers that wait, with and without ``async``: for a slot, for their own keys, or for a place under a limit."""

from .concurrency import ConcurrencyLimit
from .drivers import (
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
    as_refused,
    of_all,
    outbound_sources,
    pace_timeout,
    unchanged,
    waiters_of,
)

__all__ = [
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
    "as_refused",
    "background_loop",
    "of_all",
    "outbound_sources",
    "pace_timeout",
    "reset_in_child",
    "run_async",
    "run_in_place",
    "run_sync",
    "sleep",
    "take_all",
    "unchanged",
    "waiters_of",
]
