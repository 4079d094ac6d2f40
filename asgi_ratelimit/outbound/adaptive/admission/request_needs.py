"""What one request needs from the store: the charges of its take, and the bucket of the model that each is about.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from ....decision import Charge
from ....quotas import Quota
from ..queued_requests import Call
from ..server_buckets import PioneerBucket, ProbedBucket, ReportedBucket
from .shared_quotas import NAME, learned_charge, pause_condition, pioneer_charge


class Need(NamedTuple):
    """A charge, or a condition; ``bucket`` is ``None`` for a declared quota."""

    charge: Charge
    bucket: ProbedBucket | None
    purpose: Literal["quota", "pioneer", "units", "pause"]

    @property
    def charged(self) -> ReportedBucket | None:
        """The learned bucket of which the charge takes units, if it does."""
        return self.bucket if self.purpose == "units" and isinstance(self.bucket, ReportedBucket) else None


def needs_of(call: Call, quotas: Sequence[Quota]) -> list[Need]:
    """The needs of an admitted request."""
    host = call.host.name
    needs = [Need(Charge(quota, host, 1, NAME), None, "quota") for quota in quotas]
    for bucket, _ in call.probed():  # for a hidden limit, each process searches by itself
        if isinstance(bucket, PioneerBucket):
            needs += _of_pioneers(call, bucket)
        elif isinstance(bucket, ReportedBucket):
            needs += _of_learned(host, bucket)
    return needs


def _of_pioneers(call: Call, bucket: PioneerBucket) -> Iterator[Need]:
    host, by_route = call.host, call.host.has_routes
    if bucket is (call.route.section.pioneer_bucket if by_route else call.route.pioneer_bucket):
        return  # nobody else has this one
    if bucket.is_probed:
        yield Need(pioneer_charge(host.name, bucket.name), bucket, "pioneer")
    if bucket is not call.route.section.pioneer_bucket:
        yield Need(pause_condition(host.name, bucket.name), bucket, "pause")


def units_of(host: str, bucket: ReportedBucket) -> Charge | None:
    """The charge of a request to a learned bucket; ``None`` while it is unknown how to charge it."""
    rate, cost = bucket.stored.rate, bucket.size.cost
    return None if rate is None or cost <= 0.0 else learned_charge(host, bucket.name, rate, cost)


def _of_learned(host: str, bucket: ReportedBucket) -> Iterator[Need]:
    units = units_of(host, bucket)
    if units is not None:
        yield Need(units, bucket, "units")
    elif bucket.is_probed and bucket.limit == math.inf:
        yield Need(pioneer_charge(host, bucket.name), bucket, "pioneer")
    yield Need(pause_condition(host, bucket.name), bucket, "pause")
