"""The denial cache: it refuses a take again, without a trip to the store, for as long as that is exact.

A refusal changes nothing, so the states that it was decided on still stand. The same arithmetic over them at a later
time gives the same answer as the store would, until it says that the take would pass. The cache gives up on a refusal
after a second at the latest, so that a reset or a raised limit is seen.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat

from ...algorithms import ALGORITHMS, Outcome, State, current, decide, is_queue, is_read_in_whole
from ...decision import Charge, ChargeTemplate, Decision, Take
from ...quotas import SECOND_US, Quota

LONGEST_US = 1_000_000.0
"""The longest time for which a refusal is remembered, in microseconds."""

MAX_DENIALS = 10_000
"""The most buckets that are remembered; the oldest goes first."""


@dataclass(slots=True)
class Denial:
    """The state that refused a quota, when its take was sent by our clock, and how far the store's clock is ahead.

    It counts for ``lasts_us`` from then on. The store decides a cost below ``least_cost``, and a take with another
    number of charges than ``charges``, unless that is 0.
    """

    quota: Quota
    state: State
    sent_us: float
    ahead_us: float
    lasts_us: float
    least_cost: float
    charges: int


class Denials:
    """The refusals of the last second, by bucket. ``now_us`` is a clock in microseconds that never jumps.

    It never remembers an allowed take. Threads may share it.
    """

    def __init__(self, now_us: Callable[[], float]) -> None:
        self.now_us = now_us
        self.by_bucket: OrderedDict[str, Denial] = OrderedDict()

    def find(self, take: Take) -> Decision | None:
        """The refusal of ``take``, if it is certain without the store."""
        if not self.by_bucket:
            return None
        now, denials = self.now_us(), []
        for charge in take.charges:
            denial = self.by_bucket.get(charge.bucket)
            if denial is None or not 0 <= now - denial.sent_us < denial.lasts_us:
                return None
            if not _is_for(denial, charge.quota, charge.cost, len(take.charges)):
                return None
            denials.append(denial)
        return _refused(take, denials, now)

    def find_charge(self, template: ChargeTemplate, bucket: str) -> Outcome | None:
        """The refusal of a take of one charge without a wait, if it is certain without the store."""
        denial, quota = self.by_bucket.get(bucket), template.quota
        if denial is None:
            return None
        now = self.now_us()
        if not 0 <= now - denial.sent_us < denial.lasts_us or not _is_for(denial, quota, template.cost, 1):
            return None
        there = float(int(now + denial.ahead_us))
        state = current(quota, denial.state, there)
        taken = ALGORITHMS[type(quota)].take(quota, state, there, template.cost, 0.0)
        return None if taken[0] is not None else (taken, state, there, 0)

    def note(self, decision: Decision, sent_us: float) -> None:
        """Remember a refusal; ``sent_us`` is when its take was sent, by our clock.

        The store decided later than that, so its time as computed here is never behind, and nobody is refused for too
        long. If slots are booked ahead, a cost that fits at one time may not fit at a later one. Then only the cost
        that was refused, or a higher one, is certain not to fit until its wait is over. A state of which a take of more
        charges may read less applies only to takes with as many charges.
        """
        self._note(decision, sent_us, frozenset())

    def note_others(self, decision: Decision, sent_us: float) -> None:
        """Remember also the buckets that have not refused a take, whose refusals in parts of it were noted before.

        If such a refusal is forgotten meanwhile, its bucket has changed since, and nothing is remembered.
        """
        refusing = {charge.bucket for charge, state in zip(decision.charges, decision.states) if not state.allowed}
        if refusing <= self.by_bucket.keys():
            self._note(decision, sent_us, refusing)

    def _note(self, decision: Decision, sent_us: float, but: Collection[str]) -> None:
        if decision.allowed or decision.take is None or decision.before is None:
            return
        times, count = decision.times_us or repeat(decision.now_us), len(decision.take.charges)
        for charge, state, quota_state, now_us in zip(decision.take.charges, decision.before, decision.states, times):
            if charge.bucket in but:
                continue
            least_cost, lasts_us = 0.0, LONGEST_US
            if not is_queue(charge.quota, state, now_us):
                least_cost = math.inf if quota_state.allowed else charge.cost
                lasts_us = min(quota_state.retry_after * SECOND_US, LONGEST_US)
            self.by_bucket.pop(charge.bucket, None)
            charges = 0 if is_read_in_whole(charge.quota, state) else count
            ahead_us = now_us - sent_us
            self.by_bucket[charge.bucket] = Denial(
                charge.quota, state, sent_us, ahead_us, lasts_us, least_cost, charges
            )
        while len(self.by_bucket) > MAX_DENIALS:
            self.by_bucket.popitem(last=False)

    def forget(self, charges: Iterable[Charge]) -> None:
        """Forget the refusals of the buckets of these charges."""
        if self.by_bucket:
            for charge in charges:
                self.by_bucket.pop(charge.bucket, None)


def _is_for(denial: Denial, quota: Quota, cost: float, charges: int) -> bool:
    if cost < denial.least_cost or denial.charges not in (0, charges):
        return False
    return denial.quota is quota or denial.quota == quota


def _refused(take: Take, denials: Sequence[Denial], now: float) -> Decision | None:
    """The refusal of a take over the states that refused, by the store's clock that is furthest ahead."""
    ahead = max([denial.ahead_us for denial in denials])
    decision, _ = decide(take, [denial.state for denial in denials], float(int(now + ahead)))
    return None if decision.allowed else decision
