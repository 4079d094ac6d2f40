"""Outgoing calls: each waits for its slot instead of being refused."""

from .adaptive import AdaptiveTransport
from .pace_decorator import pace
from .paced_transport import PacedTransport

__all__ = ["AdaptiveTransport", "PacedTransport", "pace"]
