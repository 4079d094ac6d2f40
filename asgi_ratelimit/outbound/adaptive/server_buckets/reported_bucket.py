"""One bucket of a server, as far as its answers report it: how much is left, and when there is more.

Times are microseconds. No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from ....headers import ServerLimit
from ....quotas import SECOND_US
from .bucket import RETRY_US, StoredBucket, known
from .bucket_refills import Rate
from .bucket_size import BucketSize
from .probed_buckets import LEASE_US, ProbedBucket

LOOK_US = 0.1 * SECOND_US
"""After how long a request that waits for the answer to another one tries again if none comes."""


@dataclass(eq=False, repr=False)
class ReportedBucket(ProbedBucket):
    """A bucket with ``available`` units that may still be used, at most its ``size``.

    Each request uses its cost when it is admitted. Units come back one by one, or all at ``reset_at_us``, when the next
    window begins, which is a new epoch. Answers say how many are left; they may be late, and in any order, so within an
    epoch the least that one of them says counts.
    """

    size: BucketSize = field(default_factory=BucketSize)
    stored: StoredBucket = field(default_factory=StoredBucket)
    available: float = math.inf
    reset_at_us: float = math.inf
    reset_is_assumed: bool = False
    """Whether no answer has said that there is more at ``reset_at_us``."""
    began_us: float = 0.0
    """When this epoch began."""
    updated_us: float = 0.0
    """Up to when the units that came back one by one are in ``available``."""
    last_sent_us: float = 0.0
    lowest: float = math.inf
    """The least that answers have reported since there was no request under way."""
    ahead: tuple[float, float] | None = None
    """The units left in the next window, and its end, if the server has begun it before this bucket."""

    @property
    def limit(self) -> float:
        return self.size.limit

    @property
    def remaining(self) -> float | None:
        return None if self.is_probed else known(max(self.available, 0.0))

    def ready_at(self, now_us: float) -> float:
        held_up_us = super().ready_at(now_us)
        if held_up_us > now_us or self.is_probed:
            return held_up_us
        if self.available >= self.size.least - 1e-9:
            return now_us + LOOK_US if self._is_contended() else now_us
        if self.size.refill:
            shortest_us = LOOK_US if self._is_crowded() else 1.0
            return now_us + max(self._missing_us(), shortest_us)
        if self.reset_at_us == math.inf:
            self.reset_is_assumed = True
            self.reset_at_us = max(self.last_sent_us + LEASE_US, now_us + 1) if self.unanswered else now_us + RETRY_US
        return self.reset_at_us

    def not_before(self, now_us: float) -> float:
        ready_us = self.ready_at(now_us)
        held_up_us = super().not_before(now_us)
        if held_up_us > now_us:
            return held_up_us
        is_open = self.is_probed or self.reset_is_assumed or self._is_crowded() or self._is_contended()
        return now_us if is_open else ready_us

    def more_at(self, now_us: float) -> float:
        """When there is more of an exhausted bucket; ``now_us`` if that is not known."""
        if self.size.refill:
            return now_us + max(self._missing_us(), 0.0)
        return now_us if self.reset_is_assumed or self.reset_at_us == math.inf else self.reset_at_us

    def admit(self, now_us: float) -> int:
        self.available -= self.size.cost
        return super().admit(now_us)

    def withdraw(self, epoch: int) -> None:
        super().withdraw(epoch)
        if not self.is_probed:
            self.available = min(self.available + self.size.cost, self.limit)

    def send(self, now_us: float) -> int:
        self.last_sent_us = now_us
        return super().send(now_us)

    def end(self, epoch: int, now_us: float) -> None:
        if self.size.refill:
            self._refill(now_us)  # as long as there was no room for more
        super().end(epoch, now_us)
        if epoch == self.epoch and self.reset_is_assumed and not self.unanswered:
            self.reset_at_us = min(self.reset_at_us, now_us + RETRY_US)

    def refuse(self, now_us: float, wait_us: float | None) -> None:
        self.size.refuse()
        super().refuse(now_us, wait_us)

    def adopt(self, limit: float, cost: float, rate: Rate | None, now_us: float) -> None:
        """Go on with what another process has learned of this bucket; the store knows how much is left."""
        if self.is_probed or limit != self.limit:
            self._begin(now_us, limit)
            self.size.adopt(limit, cost)
        if rate != self.stored.rate:
            self.stored.rate, self.held_until_us = rate, 0.0
        if rate is not None:
            self.size.adopt_rate(rate)
            if rate.refills and self.size.small_burst.refills:
                self.available = min(self.available, self.size.small_burst.room)

    def learn(
        self,
        report: ServerLimit,
        epoch: int,
        now_us: float,
        *,
        sent_us: float = math.inf,
        is_refused: bool = False,
    ) -> None:
        """Learn from an answer that reports this bucket; its request, sent at ``sent_us``, was one of this epoch.

        An answer to a request of an earlier epoch never raises what is available now.
        """
        self._move_on(now_us)
        left, reset_at_us = report.remaining or 0.0, _reset_at(report, now_us)
        if epoch < self.epoch:
            self._learn_late(left, reset_at_us)
            return
        self.misses = 0
        self.size.learn(report, now_us, sent_us=sent_us, is_alone=not self.under_way, is_refused=is_refused)
        self.updated_us = now_us
        self.stored.reported, self.stored.is_spent = left, left < self.size.least
        self._learn_left(self.size.exact(report), reset_at_us)
        if self.size.small_burst.refills:
            self.available = min(self.available, self._room())

    def is_idle(self, now_us: float) -> bool:
        if not super().is_idle(now_us):
            return False
        if self.size.refill:
            return self.available + (now_us - self.updated_us) * self.size.refill >= self.limit
        return self.reset_at_us == math.inf or self.reset_at_us <= now_us

    def _learn_late(self, left: float, reset_at_us: float) -> None:
        """Learn from an answer to a request of an earlier epoch, if it is about the present one."""
        slack = min(self.size.window_us / 2, RETRY_US)
        if reset_at_us != math.inf and reset_at_us > self.began_us + slack and not self.is_probed:
            self.available = min(self.available, left)
            if self.reset_at_us == math.inf:
                self._set_reset(reset_at_us)

    def _learn_left(self, left: float, reset_at_us: float) -> None:
        """Learn from the units that an answer has left, and from the time at which there is more."""
        if self.is_probed:
            self.is_probed = False
            self.available = left - (self.unsent + self.under_way) * self.size.cost
            self._set_reset(reset_at_us)
        elif self.size.is_next_unit:
            self._learn_next_unit(left)
            self._set_reset(reset_at_us)
        elif self._is_of_next_window(reset_at_us):
            self.ahead = min(left, self.ahead[0]) if self.ahead else left, reset_at_us
        else:
            self.available = min(self.available, left)
            if self.reset_is_assumed or reset_at_us < self.reset_at_us:
                self._set_reset(reset_at_us)

    def _learn_next_unit(self, left: float) -> None:
        """Learn from the units left by an answer that says nothing of a window: the last one of several counts."""
        self.lowest = min(self.lowest, left)
        least = self.lowest - self.unsent * self.size.cost
        if self.size.small_burst.refills:  # the reported units are rounded down, those available here are not
            self.available = min(max(self.available, -math.inf if self.under_way else least), left + 0.999)
        else:
            self.available = min(self.available, left) if self.under_way else least
        if not self.under_way:
            self.lowest = math.inf

    def _is_of_next_window(self, reset_at_us: float) -> bool:
        """Whether the server has begun a window that this bucket has not: its end is much later."""
        if self.size.refill or self.reset_at_us == math.inf or self.reset_is_assumed or reset_at_us == math.inf:
            return False
        return reset_at_us > self.reset_at_us + max(self.size.window_us / 2, 50_000.0)

    def _set_reset(self, at_us: float) -> None:
        self.reset_at_us, self.reset_is_assumed = at_us, False

    def _move_on(self, now_us: float) -> None:
        """Apply everything that has happened until now: the end of a pause or a window, and units that came back."""
        super()._move_on(now_us)
        if self.size.refill:
            self._refill(now_us)
        elif self.reset_at_us <= now_us and not self.is_probed:
            self._reset(now_us)

    def _refill(self, now_us: float) -> None:
        """Add units that have come back one by one. A small burst may be full until the requests under way arrive."""
        more = max(now_us - self.updated_us, 0.0) * self.size.refill
        self.available = min(self.available + more, max(self._room(), self.available))
        self.updated_us = now_us

    def _missing_us(self) -> float:
        """How long it takes until enough units for a request have come back one by one."""
        return math.ceil((self.size.least - self.available) / self.size.refill)

    def _is_crowded(self) -> bool:
        """Whether the requests under way may use all of a small burst, so that the next one waits for an answer."""
        return self.size.small_burst.refills and self._room() < self.size.least

    def _is_contended(self) -> bool:
        """Whether as many requests as the store probably has units for are about to be sent, or one if it has none.

        Without this bound, all that wait would ask the store for the same unit, each time that one comes back.
        """
        return self.unsent * self.size.cost >= self.stored.left and self.unsent > 0

    def _room(self) -> float:
        """The most units that may be available now, given the requests that have not arrived at the server yet."""
        if self.size.small_burst.refills:
            return self.size.small_burst.room - (self.unsent + self.under_way) * self.size.cost
        return self.limit - self.unsent * self.size.cost

    def _reset(self, now_us: float) -> None:
        """Begin the next window; a pioneer goes first if it is not known how many units it has."""
        if self.size.is_next_unit and not self.reset_is_assumed and self.available >= self.size.least:
            self._set_reset(math.inf)
            return
        if self.size.is_next_unit or self.reset_is_assumed or not self.size.is_limited:
            self.probe(now_us)
            return
        self.stored.has_renewed = True
        left, ends_us = self.ahead or (self.limit, math.inf)
        in_flight = (self.unanswered + self.unsent) * self.size.cost
        self._begin(now_us, min(self.limit, left) - in_flight)
        self._set_reset(ends_us)

    def _begin(self, now_us: float, available: float = 0.0) -> None:
        super()._begin(now_us)
        self.available = available
        self.ahead = None
        self.lowest = math.inf
        self.began_us = self.updated_us = now_us
        self._set_reset(math.inf)


def _reset_at(report: ServerLimit, now_us: float) -> float:
    after = report.window if report.reset_after is None else report.reset_after
    return math.inf if after is None else now_us + math.ceil(after * SECOND_US)
