"""The headers that tell a client its limits, and the way back.

The syntax is that of draft-ietf-httpapi-ratelimit-headers-10: structured fields (RFC 9651), whole seconds, rounded up.
No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import math
from functools import lru_cache

from .decision import Decision, QuotaState
from .quotas import SECOND_US, Quota

Header = tuple[bytes, bytes]

LARGEST = 999_999_999_999_999
"""The largest integer of a structured field."""


def render(decision: Decision) -> list[Header]:
    """``RateLimit-Policy`` and ``RateLimit`` for all quotas of a decision."""
    states = decision.states
    if len(states) == 1:
        policy, name = _described(states[0].quota)
        return [(b"ratelimit-policy", policy), (b"ratelimit", _standing(name, states[0]))]
    described = [_described(state.quota) for state in states]
    policies = b", ".join([policy for policy, _ in described])
    standings = b", ".join([_standing(name, state) for (_, name), state in zip(described, states)])
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


@lru_cache(maxsize=4096)
def _described(quota: Quota) -> tuple[bytes, str]:
    """A quota's policy, and its quoted name."""
    name, (units, window) = quoted(quota.name), policy(quota)
    return f"{name};q={units};w={window}".encode(), name


def _standing(name: str, state: QuotaState) -> bytes:
    return f"{name};r={min(state.remaining, LARGEST)};t={math.ceil(state.more_after)}".encode()


def _integer(number: float) -> int:
    """A number rounded up, but for the noise of a division, and kept within what a structured field can hold."""
    return min(math.ceil(round(number, 6)), LARGEST)
