"""Slows keys down: jitter makes the service's count of requests differ from ours, so it refuses one now and then.

Such a refusal is no reason to stop all requests of its key for a whole second, which is the least that ``Retry-After``
can say. Each such refusal makes the requests of its key cost 3 % more for a minute, so that they keep a greater
distance. That happens at most three times at once: a further refusal counts like any other, and pauses the key.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from ...decision import Charge
from ...quotas import TokenBucket

STEP = 0.03
"""The part by which the cost of a key's requests grows for each refusal."""

MOST_STEPS = 3
STEP_US = 60_000_000.0

CERTAIN_S = 0.05
"""A refusal that asks for less than this many seconds is jitter."""

ROUNDED_S = 1.0
"""A refusal that asks for this many seconds may be jitter: services that count in whole seconds cannot say less."""


class Slowdown:
    """The keys that are slowed down, in this process. Times are microseconds of a clock that never jumps."""

    def __init__(self) -> None:
        self.keys: dict[str, tuple[float, ...]] = {}
        """The keys that may be slowed down, with the end of each of their steps."""

    def steps(self, key: str, now_us: float) -> int:
        """The number of refusals for which a key is slowed down."""
        return sum(end > now_us for end in self.keys.get(key, ()))

    def slow_if_jitter(self, key: str, retry_after_s: float, within_quota: bool, now_us: float) -> bool:
        """Slow a key down if a refusal is jitter; return whether it is.

        The refusal asks to come back in ``retry_after_s`` seconds. ``within_quota`` says that the store has admitted
        the request, and not this process on its behalf.
        """
        if retry_after_s >= CERTAIN_S and not (retry_after_s <= ROUNDED_S and within_quota):
            return False
        if self.steps(key, now_us) >= MOST_STEPS:
            return False
        current = {other: left for other, ends in self.keys.items() if (left := _later(ends, now_us))}
        self.keys = {**current, key: (*current.get(key, ()), now_us + STEP_US)}
        return True

    def slowed(self, charges: Sequence[Charge], max_wait: float, now_us: float) -> tuple[Charge, ...]:
        """The charges with the costs of a key that is slowed down, as far as they can still be admitted."""
        factor = 1.0 + STEP * self.steps(charges[0].key, now_us)
        if factor == 1.0:
            return tuple(charges)
        may_exceed = max_wait > 0.0 and len({charge.key for charge in charges}) == 1
        return tuple([_with_factor(charge, factor, may_exceed) for charge in charges])


def _later(ends: Sequence[float], now_us: float) -> tuple[float, ...]:
    return tuple([end for end in ends if end > now_us])


def _with_factor(charge: Charge, factor: float, may_exceed: bool) -> Charge:
    """A cost above the burst of a bucket waits until the bucket is empty; a window never admits one above its limit."""
    quota = charge.quota
    most = math.inf if may_exceed and isinstance(quota, TokenBucket) else max(quota.most, charge.cost)
    return replace(charge, cost=min(charge.cost * factor, most))
