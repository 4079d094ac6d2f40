"""Requests that keep to the limits that their servers report."""

from .state import LearnedBucket
from .transport import AdaptiveTransport

__all__ = ["AdaptiveTransport", "LearnedBucket"]
