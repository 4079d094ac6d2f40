"""Limiters: quotas, a store, and the methods that a program calls."""

from .charges import Cost, Key, checked_name
from .limiter import Limiter, SyncLimiter, UnownedLimiter, must_await
from .tickets import Ticket

__all__ = [
    "Cost",
    "Key",
    "Limiter",
    "SyncLimiter",
    "Ticket",
    "UnownedLimiter",
    "checked_name",
    "must_await",
]
