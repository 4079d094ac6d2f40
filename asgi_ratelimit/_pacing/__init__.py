"""How callers wait for their turn, with and without ``async``: alarms, steps, queues, and the flow over them."""

from .gates import Gates, pass_gate
from .own_keys import refused, too_far
from .steps import Ask, Flow, run_async, run_sync, sleep
from .turns import Turns

__all__ = ["Ask", "Flow", "Gates", "Turns", "pass_gate", "refused", "run_async", "run_sync", "sleep", "too_far"]
