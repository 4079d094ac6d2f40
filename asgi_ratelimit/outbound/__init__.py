"""The way out: calls that wait for their turn instead of being refused."""

from .decorator import pace

__all__ = ["pace"]
