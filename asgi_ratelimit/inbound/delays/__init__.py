"""Requests that wait for their slots instead of being refused."""

from .delay_arguments import MAX_WAITING, checked_max_delay, checked_max_waiting, require_asyncio
from .receiving import Receiving, receiving_of
from .waiting_requests import WaitingCount, WaitingRequests

__all__ = [
    "MAX_WAITING",
    "Receiving",
    "WaitingCount",
    "WaitingRequests",
    "checked_max_delay",
    "checked_max_waiting",
    "receiving_of",
    "require_asyncio",
]
