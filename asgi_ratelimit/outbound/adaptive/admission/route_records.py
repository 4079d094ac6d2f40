"""What processes tell each other about a route: the buckets that limit it, as a small document.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import json

from ....buckets import as_bytes, digest
from ..queued_requests import Call, LearnedLimit, Record
from ..server_buckets import Rate, ReportedBucket

FORMAT = 1


def name_of(call: Call) -> str:
    """The name of the document about the route of a request, or about all routes that begin alike."""
    topic = call.route.key if call.host.has_routes else call.route.section.pioneer_bucket.name
    return f"adaptive {call.host.name[:64]} {digest(as_bytes(f'{call.host.name} {topic}'))}"


def record_of(call: Call) -> Record:
    """The record of what is known about the route of a request."""
    host, buckets = call.host, call.route.buckets
    return Record(host.profile.name, tuple(map(_limit, buckets)), bool(buckets) and host.shared == buckets)


def encoded(record: Record) -> bytes:
    """A record as a document."""
    limits = [[each.name, each.limit, each.cost, each.rate] for each in record.limits]
    return json.dumps([FORMAT, record.profile, record.is_of_all, limits]).encode()


def decoded(content: bytes) -> Record | None:
    """The record in a document; ``None`` for one of another version, or for anything else."""
    try:
        number, profile, is_of_all, limits = json.loads(content)
        if number != FORMAT:
            return None
        return Record(str(profile), tuple([_read(*each) for each in limits]), bool(is_of_all))
    except (ValueError, TypeError, IndexError):
        return None


def _limit(bucket: ReportedBucket) -> LearnedLimit:
    return LearnedLimit(bucket.name, bucket.limit, bucket.size.cost, bucket.stored.rate)


def _read(name: str, limit: float, cost: float, rate: list[float] | None) -> LearnedLimit:
    if rate is None:
        return LearnedLimit(str(name), float(limit), float(cost), None)
    burst = float(rate[4]) if len(rate) > 4 else 0.0
    agreed = Rate(float(rate[0]), float(rate[1]), bool(rate[2]), bool(rate[3]), burst)
    return LearnedLimit(str(name), float(limit), float(cost), agreed)
