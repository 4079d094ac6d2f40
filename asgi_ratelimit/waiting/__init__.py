"""Callers that wait, with and without ``async``: for a slot, for their own keys, or for a place under a limit."""

from .concurrency import ConcurrencyLimit, Place
from .drivers import (
    CallStore,
    Flow,
    GiveBack,
    NewWakeUp,
    Sleep,
    background_loop,
    reset_in_child,
    run_async,
    run_in_place,
    run_sync,
    sleep,
    take_all,
)
from .queues import Row, outbound_sources, waiters_of
from .waiter import PaceTimeout, Renewed, SlotWaiter, as_refused, of_all, pace_timeout, unchanged

__all__ = [
    "CallStore",
    "ConcurrencyLimit",
    "Flow",
    "GiveBack",
    "NewWakeUp",
    "PaceTimeout",
    "Place",
    "Renewed",
    "Row",
    "Sleep",
    "SlotWaiter",
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
