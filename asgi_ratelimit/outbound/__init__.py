"""The way out: calls that wait for their turn instead of being refused."""

from .decorator import pace
from .transport import PacedTransport

__all__ = ["PacedTransport", "pace"]
