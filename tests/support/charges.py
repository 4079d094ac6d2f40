"""Charges as the fast paths of the stores take them: a template without the key, and the bucket."""

from __future__ import annotations

from asgi_ratelimit.buckets import DEFAULT_NAME
from asgi_ratelimit.decision import Charge, ChargeTemplate


def on_bucket(charge: Charge) -> tuple[ChargeTemplate, str]:
    """The template of a charge whose key needs no escaping, and its bucket."""
    prefix = charge.bucket[: charge.bucket.index("{") + 1]
    return ChargeTemplate(charge.quota, charge.cost, charge.name or DEFAULT_NAME, prefix), charge.bucket
