"""Requests that keep to the limits that their servers report."""

from .adaptive_transport import AdaptiveTransport
from .learned_state import LearnedBucket

__all__ = ["AdaptiveTransport", "LearnedBucket"]
