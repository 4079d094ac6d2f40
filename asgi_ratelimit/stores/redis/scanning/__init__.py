"""Which buckets are in a Redis: for tools, never on the way of a request."""

from .scan import Scan
from .stored_buckets import StoredBucket

__all__ = ["Scan", "StoredBucket"]
