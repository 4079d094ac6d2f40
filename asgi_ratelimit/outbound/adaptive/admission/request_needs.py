"""What one request needs from the store: the charges of its take, and the bucket of the model that each is about.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from ....decision import Charge
from ....quotas import Quota
from ..hidden import HiddenBucket
from ..learned_bucket import Bucket
from ..queued_requests import Call
from .shared_quotas import NAME, learned_charge, pause_condition, pioneer_charge


class Need(NamedTuple):
    """A charge, or a condition; ``bucket`` is ``None`` for a declared quota."""

    charge: Charge
    bucket: Bucket | None
    purpose: Literal["quota", "pioneer", "units", "pause"]


def needs_of(call: Call, quotas: Sequence[Quota]) -> list[Need]:
    """The needs of an admitted request."""
    host = call.host.name
    needs = [Need(Charge(quota, host, 1, NAME), None, "quota") for quota in quotas]
    for bucket, _ in call.admitted:
        if isinstance(bucket, HiddenBucket):
            continue  # each process searches by itself
        needs += _of_gate(call, bucket) if is_gate(call, bucket) else _of_learned(host, bucket)
    return needs


def is_gate(call: Call, bucket: Bucket) -> bool:
    """Whether a bucket stands for a route, a section or the whole host, and has no limit of its own."""
    return bucket in (call.host.everything, call.route.section.pioneer_bucket, call.route.pioneer_bucket)


def _of_gate(call: Call, bucket: Bucket) -> Iterator[Need]:
    host, by_route = call.host, call.host.has_routes
    if bucket is (call.route.section.pioneer_bucket if by_route else call.route.pioneer_bucket):
        return  # nobody else has this one
    if bucket.is_probed:
        yield Need(pioneer_charge(host.name, bucket.name), bucket, "pioneer")
    if bucket is not call.route.section.pioneer_bucket:
        yield Need(pause_condition(host.name, bucket.name), bucket, "pause")


def units_of(host: str, bucket: Bucket) -> Charge | None:
    """The charge of a request to a learned bucket; ``None`` while it is unknown how to charge it."""
    if bucket.rate is None or bucket.cost <= 0.0:
        return None
    return learned_charge(host, bucket.name, bucket.rate, bucket.cost)


def _of_learned(host: str, bucket: Bucket) -> Iterator[Need]:
    units = units_of(host, bucket)
    if units is not None:
        yield Need(units, bucket, "units")
    elif bucket.is_probed and bucket.limit == math.inf:
        yield Need(pioneer_charge(host, bucket.name), bucket, "pioneer")
    yield Need(pause_condition(host, bucket.name), bucket, "pause")
