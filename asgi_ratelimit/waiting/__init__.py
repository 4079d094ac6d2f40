"""Callers that wait, with and without ``async``: for a slot, for their own keys, or for a place under a limit."""

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
from .waiter import (
    PaceTimeout,
    Row,
    SlotWaiter,
    outbound_sources,
    pace_timeout,
    too_late,
)

__all__ = [
    "CallStore",
    "Flow",
    "GiveBack",
    "PaceTimeout",
    "Row",
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
]
