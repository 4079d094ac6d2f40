"""The denial cache: it refuses takes of a bucket that has just refused, without a trip to the store.

A refusal changes nothing, so its states still hold, and say whether another take is refused as well, and for how long.
Other takes may have passed meanwhile, here or in other processes, so the retry time in such an answer is a lower bound.
The cache gives up on a refusal after a second at the latest, so that a reset or a raised limit is seen.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable

from ...algorithms.take import decide
from ...decision import Charge, Decision, Take
from ...quotas import InFlight, Quota

# The longest time for which a refusal is remembered, in microseconds.
LONGEST_US = 1_000_000.0

# The most buckets whose refusals are remembered; the oldest goes first.
MAX_DENIALS = 10_000


class Denials:
    """The refusals of the last second, by each bucket of their takes. Threads may share it.

    ``now_us`` is a clock in microseconds that never jumps.
    """

    def __init__(self, now_us: Callable[[], float]) -> None:
        self.now_us = now_us
        # The refusals, and when their takes were sent.
        self.by_bucket: OrderedDict[str, tuple[Decision, float]] = OrderedDict()

    def find(self, take: Take) -> Decision | None:
        """The refusal of ``take``, if it is certain without the store."""
        decision, sent_us = self.by_bucket.get(take.charges[0].bucket, (None, 0.0))
        if decision is None:
            return None
        elapsed_us = float(math.floor(self.now_us() - sent_us))
        if not 0.0 <= elapsed_us < LONGEST_US or take.best_effort or _asked(take) != _asked(decision.take):
            return None
        now = decision.now_us + elapsed_us
        wait_us, after = decide(take.charges, decision.stored, now, take.max_wait_us)
        return Decision(take, False, wait_us, decision.stored, now) if after is None else None

    def note(self, decision: Decision, sent_us: float) -> None:
        """Remember a refusal; ``sent_us`` is when its take was sent, by our clock.

        The store decided later than that, so its time as computed here is never behind, and nobody is refused for too
        long.
        """
        if any(type(each.quota) is InFlight for each in decision.refusing):
            return  # a place may come back at any time
        self.forget(decision.take.charges)  # so that each refusal can be found by all of its buckets, or by none
        self.by_bucket.update({charge.bucket: (decision, sent_us) for charge in decision.take.charges})
        while len(self.by_bucket) > MAX_DENIALS:
            self.by_bucket.popitem(last=False)

    def forget(self, charges: Iterable[Charge]) -> None:
        """Forget the refusals that a change of these buckets may have ended."""
        for charge in charges:
            decision, _ = self.by_bucket.pop(charge.bucket, (None, 0.0))
            for other in decision.take.charges if decision is not None else ():
                self.by_bucket.pop(other.bucket, None)


def _asked(take: Take) -> list[tuple[str, Quota]]:
    return [(charge.bucket, charge.quota) for charge in take.charges]
