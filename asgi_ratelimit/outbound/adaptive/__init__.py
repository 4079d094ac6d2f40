"""Requests that keep to the limits that their servers report."""

from .transport import AdaptiveTransport, LearnedBucket

__all__ = ["AdaptiveTransport", "LearnedBucket"]
