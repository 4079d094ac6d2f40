"""The headers that tell a client its limits, and the way back.

The syntax is that of draft-ietf-httpapi-ratelimit-headers-10: structured fields (RFC 9651), whole seconds, rounded up.
No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import math

from .decision import Decision, QuotaState
from .quotas import SECOND_US, Quota

Header = tuple[bytes, bytes]

LARGEST = 999_999_999_999_999
"""The largest integer of a structured field."""

MAX_DESCRIBED = 4096
"""How many quotas' policies are kept ready, at the most."""


def render(decision: Decision) -> list[Header]:
    """``RateLimit-Policy`` and ``RateLimit`` for all quotas of a decision."""
    states = decision.states
    if len(states) == 1:
        described, form = _described(states[0].quota)
        return [(b"ratelimit-policy", described), (b"ratelimit", _standing(form, states[0]))]
    all_described = [_described(state.quota) for state in states]
    policies = b", ".join([described for described, _ in all_described])
    standings = b", ".join([_standing(form, state) for (_, form), state in zip(all_described, states)])
    return [(b"ratelimit-policy", policies), (b"ratelimit", standings)]


def retry_after(decision: Decision) -> list[Header]:
    """``Retry-After`` in whole seconds, at least 1; none where the take can never pass."""
    if decision.retry_after == math.inf:
        return []
    return [(b"retry-after", b"%d" % max(1, math.ceil(decision.retry_after)))]


def policy(quota: Quota) -> tuple[int, int]:
    """A quota as ``q`` units in ``w`` whole seconds: never less than what may really pass, and at the true rate."""
    if quota.most > quota.limit:
        return _integer(quota.most), _integer(quota.most * quota.period_us / quota.limit / SECOND_US)
    window = max(1, math.ceil(quota.period_us / SECOND_US))
    return _integer(quota.limit * window * SECOND_US / quota.period_us), _integer(window)


def quoted(name: str) -> str:
    """``name`` as a structured-field string."""
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


_described_before: dict[int, tuple[Quota, tuple[bytes, bytes]]] = {}
"""By the identity of the quota, which costs less than its hash; the quota is kept, so that no other takes it over."""


def _described(quota: Quota) -> tuple[bytes, bytes]:
    """A quota's policy, and a form to fill in with what is left of it and when there is more."""
    before = _described_before.get(id(quota))
    if before is not None:
        return before[1]
    if len(_described_before) >= MAX_DESCRIBED:
        _described_before.clear()
    described = _describe(quota)
    _described_before[id(quota)] = (quota, described)
    return described


def _describe(quota: Quota) -> tuple[bytes, bytes]:
    name, (units, window) = quoted(quota.name), policy(quota)
    return f"{name};q={units};w={window}".encode(), name.replace("%", "%%").encode() + b";r=%d;t=%d"


def _standing(form: bytes, state: QuotaState) -> bytes:
    left = state.remaining
    return form % (left if left < LARGEST else LARGEST, math.ceil(state.more_after))


def _integer(number: float) -> int:
    """A number rounded up, but for the noise of a division, and kept within what a structured field can hold."""
    return min(math.ceil(round(number, 6)), LARGEST)
