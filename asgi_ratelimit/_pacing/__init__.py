"""How callers wait for their turn, with and without ``async``: alarms, steps, queues, and the flow over them."""

from .steps import Flow, run_async, run_sync
from .turns import Turns

__all__ = ["Flow", "Turns", "run_async", "run_sync"]
