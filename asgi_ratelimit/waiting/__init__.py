"""Callers that wait, with and without ``async``: for a slot, for their own keys, or for a place under a limit."""

from .concurrency import ConcurrencyLimit, Place
from .flow_drivers import CallStore, Flow, GiveBack, run_async, run_sync, sleep, take_all
from .own_and_shared_keys import Renewed, unchanged
from .slot_waiter import SlotWaiter
from .slots.slot import Slot
from .timeouts import PaceTimeout, as_refused, of_all, pace_timeout

__all__ = [
    "CallStore",
    "ConcurrencyLimit",
    "Flow",
    "GiveBack",
    "PaceTimeout",
    "Place",
    "Renewed",
    "Slot",
    "SlotWaiter",
    "as_refused",
    "of_all",
    "pace_timeout",
    "run_async",
    "run_sync",
    "sleep",
    "take_all",
    "unchanged",
]
