"""Requests that keep to the limits that their servers report."""

from .learned_state import LearnedBucket
from .transport import AdaptiveTransport

__all__ = ["AdaptiveTransport", "LearnedBucket"]
