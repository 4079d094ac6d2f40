"""The buckets in a Redis, for tools; no request ever waits for this."""

from .scan import Scan
from .stored_buckets import StoredBucket

__all__ = ["Scan", "StoredBucket"]
