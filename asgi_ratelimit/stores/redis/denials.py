"""The denial cache: what was refused is refused again here, with no trip to the store, for as long as that is exact.

A refusal changes nothing, so the states that it was decided on still stand, and the same arithmetic over them at a
later time gives the same answer as the store would: until it says that the take would pass, or for a second at the
most, so that a reset or a raised limit is seen.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from itertools import repeat
from typing import TypeAlias

from ...algorithms import State, decide, decide_simple
from ...decision import Bucket, Charge, Decision, Take
from ...quotas import Quota

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

    def __bool__(self) -> bool:
        return bool(self._denied)

    def find(self, take: Take) -> Decision | None:
        """The refusal of ``take``, if that is certain without asking the store."""
        if not self._denied:
            return None
        now = self.now_us()
        if take.only is not None:
            denied = self._known(take.only, now)
            if denied is None:
                return None
            decision, _ = decide_simple(take, take.only, denied[1], float(int(now + denied[3])))
            return None if decision.allowed else decision
        found = [self._known(charge, now) for charge in take.charges]
        all_denied = [denied for denied in found if denied is not None]
        if len(all_denied) < len(found):
            return None
        ahead = max([denied[3] for denied in all_denied])  # by the clock that is furthest ahead, never too long
        decision, _ = decide(take, [denied[1] for denied in all_denied], float(int(now + ahead)))
        return None if decision.allowed else decision

    def _known(self, charge: Charge, now: float) -> Denied | None:
        """What refused this charge, if that is not too long ago."""
        denied = self._denied.get(charge.bucket)
        if denied is None or not 0 <= now - denied[2] < LONGEST_US:
            return None
        return denied if denied[0] is charge.quota or denied[0] == charge.quota else None

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
