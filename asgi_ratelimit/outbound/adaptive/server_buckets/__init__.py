"""The buckets that requests wait for, and those of them that answers of a server report."""

from __future__ import annotations

from .bucket import RETRY_US, Bucket, known
from .bucket_refills import Rate
from .bucket_size import LEAST, BucketSize
from .probed_buckets import PioneerBucket, ProbedBucket
from .reported_bucket import ReportedBucket

__all__ = [
    "LEAST",
    "RETRY_US",
    "Bucket",
    "BucketSize",
    "PioneerBucket",
    "ProbedBucket",
    "Rate",
    "ReportedBucket",
    "known",
]
