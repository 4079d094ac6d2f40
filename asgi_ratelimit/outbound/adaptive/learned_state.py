"""What a transport has learned, for a person to read.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ...quotas import SECOND_US
from .queued_requests import Host
from .server_buckets import Bucket, ProbedBucket, known


@dataclass(frozen=True, slots=True)
class LearnedBucket:
    """A bucket of a ``host``, as its answers report it; times are in seconds.

    * ``limit`` and ``remaining`` are units, or ``None`` if they are not known; ``under_way`` is the number of requests.
    * ``waiting`` is how many requests wait for it, and ``next_release`` when the next of them may go at the latest.
    * ``is_unknown``: one request goes first, to find out.
    """

    host: str
    name: str
    limit: float | None
    remaining: float | None
    under_way: int
    waiting: int
    next_release: float
    paused_for: float
    is_unknown: bool


def learned_buckets(hosts: Iterable[Host], now_us: float) -> Iterator[LearnedBucket]:
    """All buckets of all hosts, except those that neither limit nor hold up anyone."""
    for host in hosts:
        pioneer_buckets = [
            host.everything,
            *host.hidden,
            *(section.pioneer_bucket for section in host.sections.values()),
        ]
        pioneer_buckets += [route.pioneer_bucket for route in host.routes.values()]
        for bucket in (*pioneer_buckets, *host.buckets.values()):
            learned = _learned(host.name, bucket, now_us)
            if learned.limit is not None or learned.waiting or learned.paused_for or learned.is_unknown:
                yield learned


def _learned(host: str, bucket: Bucket, now_us: float) -> LearnedBucket:
    next_us = bucket.ready_at(now_us) - now_us
    is_probed = isinstance(bucket, ProbedBucket) and bucket.is_probed
    return LearnedBucket(
        host=host,
        name=bucket.name,
        limit=known(bucket.limit),
        remaining=bucket.remaining,
        under_way=bucket.unanswered if isinstance(bucket, ProbedBucket) else 0,
        waiting=sum(len(route.queue) for route in bucket.waiting),
        next_release=next_us / SECOND_US,
        paused_for=bucket.paused_us(now_us) / SECOND_US,
        is_unknown=is_probed,
    )
