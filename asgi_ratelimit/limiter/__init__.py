"""Limiters: quotas, a store, and the verbs that a program calls."""

from ._bill import Cost, Key, as_key, checked_name
from ._limiter import Limiter, as_store
from ._spending import Spending, Spent
from ._sync import SyncLimiter
from ._tickets import Ticket

__all__ = [
    "Cost",
    "Key",
    "Limiter",
    "Spending",
    "Spent",
    "SyncLimiter",
    "Ticket",
    "as_key",
    "as_store",
    "checked_name",
]
