"""How callers wait for their turn, with and without ``async``: alarms, steps, queues, and the flow over them."""

from .concurrency import Gates, pass_gate
from .drivers import Ask, Flow, run_async, run_sync, sleep
from .flow import Turns
from .own_keys import refused, too_far

__all__ = ["Ask", "Flow", "Gates", "Turns", "pass_gate", "refused", "run_async", "run_sync", "sleep", "too_far"]
