"""The denial cache: what was refused is refused again here, with no trip to the store, for as long as that is exact.

A refusal changes nothing, so the states that it was decided on still stand, and the same arithmetic over them at a
later time gives the same answer as the store would: until it says that the take would pass, or for a second at the
most, so that a reset or a raised limit is seen.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable
from itertools import repeat
from typing import TypeAlias

from ..algorithms import State, decide, decide_simple
from ..decision import Bucket, Charge, Decision, Take
from ..quotas import Quota

Denied: TypeAlias = tuple[Quota, State, float, float]
"""A quota, the state that refused, when it was asked for by our clock, and what the store's clock was ahead of ours."""

LONGEST_US = 1_000_000.0
"""How long a refusal is remembered, in microseconds, at the most."""

MAX_DENIALS = 10_000
"""How many buckets are remembered, at the most; the oldest goes first."""


class Denials:
    """The refusals of the last second, by bucket. ``now_us`` is a clock in microseconds that never jumps.

    It never remembers that something was allowed. Threads may share it.
    """

    def __init__(self, now_us: Callable[[], float]) -> None:
        self.now_us = now_us
        self._denied: OrderedDict[Bucket, Denied] = OrderedDict()

    def find(self, take: Take) -> Decision | None:
        """The refusal of ``take``, if that is certain without asking the store."""
        if not self._denied:
            return None
        now, states, ahead = self.now_us(), [], -math.inf
        for charge in take.charges:
            denied = self._denied.get(charge.bucket)
            if denied is None:
                return None
            quota, state, asked_us, ahead_us = denied
            if not 0 <= now - asked_us < LONGEST_US or (quota is not charge.quota and quota != charge.quota):
                return None
            states.append(state)
            if ahead_us > ahead:  # by the clock that is furthest ahead, we never refuse too long
                ahead = ahead_us
        then = float(int(now + ahead))
        decision = decide_simple(take, states[0], then)[0] if take.is_simple else decide(take, states, then)[0]
        return None if decision.allowed else decision

    def note(self, decision: Decision, asked_us: float) -> None:
        """Remember a decision, if it is a refusal, that was asked for at ``asked_us`` by our clock.

        The store decided later than that, so our reckoning of its time is never behind, and we never refuse too long.
        """
        if decision.allowed or decision.take is None or decision.before is None:
            return
        times = decision.times_us or repeat(decision.now_us)
        for charge, state, now_us in zip(decision.take.charges, decision.before, times):
            self._denied.pop(charge.bucket, None)
            self._denied[charge.bucket] = (charge.quota, state, asked_us, now_us - asked_us)
        while len(self._denied) > MAX_DENIALS:
            self._denied.popitem(last=False)

    def forget(self, charges: Iterable[Charge]) -> None:
        """Forget what was refused of the buckets of these charges."""
        if self._denied:
            for charge in charges:
                self._denied.pop(charge.bucket, None)
