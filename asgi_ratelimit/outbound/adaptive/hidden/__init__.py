"""Limits that no answer reports: the search for a rate, and for a number of requests at once, of a host."""

from __future__ import annotations

from ....profiles import Profile
from .hidden_buckets import ConcurrencyBucket, HiddenBucket, Outcome, RateBucket


def hidden_buckets(profile: Profile) -> tuple[HiddenBucket, ...]:
    """The buckets of a host whose profile asks to search for such limits."""
    buckets: list[HiddenBucket] = []
    if profile.hidden_rate is not None:
        buckets.append(RateBucket(profile.hidden_rate))
    if profile.hidden_concurrency is not None:
        buckets.append(ConcurrencyBucket(profile.hidden_concurrency))
    return tuple(buckets)


__all__ = ["HiddenBucket", "Outcome", "hidden_buckets"]
