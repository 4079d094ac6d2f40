"""Requests that wait for their slots instead of being refused, or whose takes come one after another."""

from .delay_arguments import MAX_WAITING, checked_max_delay, checked_max_waiting, loop_for_messages, require_asyncio
from .joined_decisions import joined
from .received_messages import Receiving, receiving_of
from .successive_takes import SuccessiveTakes, Taken
from .waiting_requests import WaitingCount, WaitingRequests

__all__ = [
    "MAX_WAITING",
    "Receiving",
    "SuccessiveTakes",
    "Taken",
    "WaitingCount",
    "WaitingRequests",
    "checked_max_delay",
    "checked_max_waiting",
    "joined",
    "loop_for_messages",
    "receiving_of",
    "require_asyncio",
]
