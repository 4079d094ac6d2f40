"""Calls that go out: each waits for its slot instead of being refused."""

from .adaptive import AdaptiveTransport
from .decorator import pace
from .transport import PacedTransport

__all__ = ["AdaptiveTransport", "PacedTransport", "pace"]
