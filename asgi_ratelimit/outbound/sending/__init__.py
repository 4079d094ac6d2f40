"""Sends a request at its slot, for clients with and without ``async``."""

from .exchange import unpaced
from .request_values import CostOfRequest, KeyOfRequest, Oversize, RequestValues
from .sender import Sender
from .settling import Settle, Settler

__all__ = [
    "CostOfRequest",
    "KeyOfRequest",
    "Oversize",
    "RequestValues",
    "Sender",
    "Settle",
    "Settler",
    "unpaced",
]
