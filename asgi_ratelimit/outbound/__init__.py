"""Calls that go out: each waits for its slot instead of being refused."""

from .decorator import pace
from .transport import PacedTransport

__all__ = ["PacedTransport", "pace"]
