"""One bucket of a server, as far as its answers report it: how much is left, and when there is more.

Times are microseconds. No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

from ...headers import ServerLimit
from ...quotas import SECOND_US
from .bucket_refills import Rate, Resets, SmallBurst

LOOK_US = 0.1 * SECOND_US
"""After how long a request that waits for the answer to another one tries again if none comes."""

LEASE_US = 10 * SECOND_US
"""How long a pioneer holds up the others. If it has no answer by then, another request goes as well."""

RETRY_US = 1 * SECOND_US
"""After how long a bucket is tried again if no answer says when there is more of it."""

LONGEST_RETRY_US = 60 * SECOND_US
"""The longest pause after refusals that name no time; each is twice as long as the one before."""

LEAST = 1e-6
"""With fewer units than this, nothing is left."""


@dataclass(slots=True, weakref_slot=True, eq=False, repr=False)
class Bucket:
    """A bucket with ``available`` units that may still be used in this window; at first, it is not limited.

    * With ``is_probed``, one request at a time may go, a pioneer; its answer says what is available.
    * ``epoch`` counts windows and probes. A request belongs to the epoch in which it was sent.
    * ``unsent`` is the number of requests that are admitted and not yet sent. ``unanswered`` is the number of requests
      of this epoch without an answer, and ``under_way`` that of all epochs.
    * ``refill`` is the number of units that come back each microsecond; 0 if all come back at ``reset_at_us``.
    * ``waiting`` are the routes that wait for this bucket, in turn.
    """

    name: str
    limit: float = math.inf
    available: float = math.inf
    cost: float = 1.0
    refill: float = 0.0
    reset_at_us: float = math.inf
    reset_is_assumed: bool = False
    is_next_unit: bool = False
    resets: Resets = field(default_factory=Resets)
    small_burst: SmallBurst = field(default_factory=SmallBurst)
    paused_until_us: float = 0.0
    held_until_us: float = 0.0
    """The time until which the store has nothing left of this bucket, because other processes have used it."""
    store_left: float = math.inf
    """The units that the store had left when it last decided on a request; they bound how many ask it at once."""
    has_renewed: bool = False
    """Whether a window that an answer has reported has ended since this flag was last checked."""
    is_spent: bool = False
    """Whether nothing was left according to the latest answer."""
    reported: float = math.inf
    """The units that were left according to the latest answer."""
    rate: Rate | None = None
    """The rate by which all processes that share a store charge this bucket."""
    is_probed: bool = False
    lease_until_us: float = 0.0
    epoch: int = 0
    window_us: float = 0.0
    began_us: float = 0.0
    updated_us: float = 0.0
    last_sent_us: float = 0.0
    unsent: int = 0
    under_way: int = 0
    unanswered: int = 0
    lowest: float = math.inf
    """The least that answers have reported since there was no request under way."""
    refusals: int = 0
    misses: int = 0
    ahead: tuple[float, float] | None = None
    """The units left in the next window, and its end, if the server has begun it before this bucket."""
    waiting: OrderedDict[Any, None] = field(default_factory=OrderedDict)

    def ready_at(self, now_us: float) -> float:
        """When the next request may go: ``now_us``, or a later time. It is always finite, so nobody waits forever."""
        self._move_on(now_us)
        if self.paused_until_us > now_us:
            return self.paused_until_us
        if self.held_until_us > now_us:
            return self.held_until_us
        if self.is_probed:
            return max(now_us, self.lease_until_us)
        least = self._least()
        if self.available >= least - 1e-9:
            return now_us + LOOK_US if self._is_contended() else now_us
        if self.refill:
            shortest_us = LOOK_US if self._is_crowded() else 1.0
            return now_us + max(math.ceil((least - self.available) / self.refill), shortest_us)
        if self.reset_at_us == math.inf:
            self.reset_is_assumed = True
            self.reset_at_us = max(self.last_sent_us + LEASE_US, now_us + 1) if self.unanswered else now_us + RETRY_US
        return self.reset_at_us

    def not_before(self, now_us: float) -> float:
        """A time before which no request may go, whatever answers come."""
        ready_us = self.ready_at(now_us)
        if self.paused_until_us > now_us:
            return self.paused_until_us
        if self.held_until_us > now_us and not self.is_probed:
            return self.held_until_us
        is_open = self.is_probed or self.reset_is_assumed or self._is_crowded() or self._is_contended()
        return now_us if is_open else ready_us

    def more_at(self, now_us: float) -> float:
        """When there is more of an exhausted bucket; ``now_us`` if that is not known."""
        if self.refill:
            return now_us + max(math.ceil((self._least() - self.available) / self.refill), 0.0)
        return now_us if self.reset_is_assumed or self.reset_at_us == math.inf else self.reset_at_us

    def admit(self, now_us: float) -> int:
        """Count a request that may go now; return its epoch."""
        self.available -= self.cost
        self.unsent += 1
        if self.is_probed:
            self.lease_until_us = now_us + LEASE_US
        return self.epoch

    def send(self, now_us: float) -> int:
        """Note that an admitted request is sent now; return its epoch."""
        self.unsent -= 1
        self.unanswered += 1
        self.under_way += 1
        self.last_sent_us = now_us
        if self.is_probed:
            self.lease_until_us = now_us + LEASE_US
        return self.epoch

    def holds_up(self, epoch: int, now_us: float) -> bool:
        """Whether a request that was admitted in this epoch may no longer go, because a pause has begun."""
        self._move_on(now_us)
        return self.paused_until_us > now_us or (self.is_probed and epoch != self.epoch)

    def withdraw(self, epoch: int) -> None:
        """Note that a request that was admitted in this epoch is not sent."""
        self.unsent -= 1
        if not self.is_probed:
            self.available = min(self.available + self.cost, self.limit)
        elif epoch == self.epoch:
            self.lease_until_us = 0.0

    def end(self, epoch: int, now_us: float) -> None:
        """Note that a request has an answer, or that none will come. The server may have counted it or not."""
        if self.refill:
            self._refill(now_us)  # as long as there was no room for more
        self.under_way -= 1
        if epoch != self.epoch:
            return
        self.unanswered -= 1
        self.lease_until_us = 0.0
        if self.reset_is_assumed and not self.unanswered:
            self.reset_at_us = min(self.reset_at_us, now_us + RETRY_US)

    def pause(self, until_us: float) -> None:
        """Let no request go before ``until_us``, and one pioneer then."""
        self.paused_until_us = max(self.paused_until_us, until_us)

    def hold(self, until_us: float) -> None:
        """Let no request go before ``until_us``, because the store has nothing left of this bucket."""
        self.held_until_us = until_us

    def is_held(self, now_us: float) -> bool:
        """Whether no request may go, whatever this process knows to be available."""
        return max(self.paused_until_us, self.held_until_us) > now_us

    def adopt(self, limit: float, cost: float, rate: Rate | None, now_us: float) -> None:
        """Go on with what another process has learned of this bucket; the store knows how much is left."""
        if self.is_probed or limit != self.limit:
            self._begin(now_us, limit)
            self.limit, self.cost, self.refill, self.resets.unit_us = limit, cost, 0.0, 0.0
        if rate != self.rate:
            self.rate, self.held_until_us = rate, 0.0
        if rate is not None:
            self.resets.adopt(rate)
            self.small_burst.adopt(rate)
            if not rate.refills:
                self.refill, self.window_us = 0.0, max(self.window_us, rate.period * SECOND_US)
            elif self.small_burst.refills:
                self.refill = rate.limit / rate.period / SECOND_US
                self.available = min(self.available, self.small_burst.room)

    def refuse(self, now_us: float, wait_us: float | None) -> None:
        """Pause after the server has refused a request; without a time, each pause in a row is twice as long.

        A refusal without a time, of a request that was sent before a pause, does not make the pause longer.
        """
        if self.small_burst.refills:
            self.small_burst.refuse()
            self.refill = self.refill if self.small_burst.refills else 0.0
        if wait_us is None:
            if self.paused_until_us > now_us:
                return
            wait_us = min(RETRY_US * 2.0 ** min(self.refusals, 10), LONGEST_RETRY_US)
        self.refusals += 1
        self.pause(now_us + wait_us)

    def open(self, epoch: int) -> None:
        """Note the answer to a request of this epoch: the bucket, which knows no limit, is no longer probed."""
        if epoch == self.epoch and self.is_probed:
            self.is_probed = False
            self.available = math.inf

    def probe(self, now_us: float) -> None:
        """Begin a window about which nothing is known: one request goes first."""
        self._begin(now_us, 0.0)
        self.is_probed = True

    def miss(self, now_us: float) -> None:
        """Note that the answer to a pioneer does not report this bucket: another pioneer goes later."""
        if self.is_probed:
            self.misses += 1
            self.pause(now_us + RETRY_US)

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
        remaining = report.remaining or 0.0
        reset_at_us = _reset_at(report, now_us)
        if epoch < self.epoch:
            self._learn_late(remaining, reset_at_us)
            return
        self.misses = 0
        self._learn_kind(report, is_refused, sent_us, now_us)
        self.updated_us = now_us
        self.reported, self.is_spent = remaining, remaining < self._least()
        if self.refill:
            remaining = self._exact(report, remaining)
        if self.is_probed:
            self.is_probed = False
            self.available = remaining - (self.unsent + self.under_way) * self.cost
            self._set_reset(reset_at_us)
        elif self.is_next_unit:
            self.lowest = min(self.lowest, remaining)
            left = self.lowest - self.unsent * self.cost
            if self.small_burst.refills:  # the reported units are rounded down, those available here are not
                self.available = min(max(self.available, -math.inf if self.under_way else left), remaining + 0.999)
            else:
                self.available = min(self.available, remaining) if self.under_way else left
            if not self.under_way:
                self.lowest = math.inf
            self._set_reset(reset_at_us)
        elif self._is_of_next_window(reset_at_us):
            left = min(remaining, self.ahead[0]) if self.ahead else remaining
            self.ahead = left, reset_at_us
        else:
            self.available = min(self.available, remaining)
            if self.reset_is_assumed or reset_at_us < self.reset_at_us:
                self._set_reset(reset_at_us)
        if self.small_burst.refills:
            self.available = min(self.available, self._room())

    def is_idle(self, now_us: float) -> bool:
        """Whether nothing is lost when the bucket is forgotten."""
        if self.waiting or self.unanswered or self.unsent or max(self.paused_until_us, self.lease_until_us) > now_us:
            return False
        if self.refill:
            return self.available + (now_us - self.updated_us) * self.refill >= self.limit
        return self.reset_at_us == math.inf or self.reset_at_us <= now_us

    def _least(self) -> float:
        """How many units must be available for a request: its cost, or the limit if that is less."""
        return max(min(self.cost, self.limit), LEAST)

    def _learn_late(self, remaining: float, reset_at_us: float) -> None:
        """Learn from an answer to a request of an earlier epoch, if it is about the present one."""
        slack = min(self.window_us / 2, RETRY_US)
        if reset_at_us != math.inf and reset_at_us > self.began_us + slack and not self.is_probed:
            self.available = min(self.available, remaining)
            if self.reset_at_us == math.inf:
                self._set_reset(reset_at_us)

    def _learn_kind(self, report: ServerLimit, is_refused: bool, sent_us: float, now_us: float) -> None:
        limit = math.inf if report.limit is None else report.limit
        if limit != self.limit:
            self.refill = self.resets.unit_us = 0.0
        self.limit = limit
        self.cost = report.cost if report.cost is not None else 1.0 if report.unit == "requests" else 0.0
        self.is_next_unit = report.reset_means == "next unit"
        window = report.window or (0.0 if self.is_next_unit else report.reset_after) or 0.0
        self.window_us = max(self.window_us, window * SECOND_US)
        if not LEAST <= limit < math.inf:
            return
        if report.refill:
            self.refill = report.refill / SECOND_US
        elif report.reset_means == "full refill" and report.reset_after:
            used = limit - (report.remaining or 0.0)
            if used > 0.0:
                full_after_us = report.reset_after * SECOND_US
                self.refill = self.resets.refill(limit, used, full_after_us, now_us, sent_us)
        elif self.is_next_unit and self.cost == 1.0 and report.window and report.reset_after is not None:
            if not is_refused:
                self.small_burst.learn(limit, report, not self.under_way, now_us)
            self.refill = limit / report.window / SECOND_US if self.small_burst.refills else 0.0

    def _exact(self, report: ServerLimit, remaining: float) -> float:
        """The units of a bucket that refills; ``remaining`` is rounded down, but the time until it is full is not."""
        if report.reset_after is None or report.reset_means != "full refill":
            return remaining
        exact = self.limit - report.reset_after * SECOND_US * self.refill
        return min(max(exact, remaining), remaining + 0.999)

    def _is_of_next_window(self, reset_at_us: float) -> bool:
        """Whether the server has begun a window that this bucket has not: its end is much later."""
        if self.refill or self.reset_at_us == math.inf or self.reset_is_assumed or reset_at_us == math.inf:
            return False
        return reset_at_us > self.reset_at_us + max(self.window_us / 2, 50_000.0)

    def _set_reset(self, at_us: float) -> None:
        self.reset_at_us, self.reset_is_assumed = at_us, False

    def _move_on(self, now_us: float) -> None:
        """Apply everything that has happened until now: the end of a pause or a window, and units that came back."""
        if 0.0 < self.paused_until_us <= now_us:
            self.paused_until_us = 0.0
            self.probe(now_us)
        if self.refill:
            self._refill(now_us)
        elif self.reset_at_us <= now_us and not self.is_probed:
            self._reset(now_us)

    def _refill(self, now_us: float) -> None:
        """Add units that have come back one by one. A small burst may be full until the requests under way arrive."""
        more = max(now_us - self.updated_us, 0.0) * self.refill
        self.available = min(self.available + more, max(self._room(), self.available))
        self.updated_us = now_us

    def _is_crowded(self) -> bool:
        """Whether the requests under way may use all of a small burst, so that the next one waits for an answer."""
        return self.small_burst.refills and self._room() < self._least()

    def _is_contended(self) -> bool:
        """Whether as many requests as the store probably has units for are about to be sent, or one if it has none.

        Without this bound, all that wait would ask the store for the same unit, each time that one comes back.
        """
        return self.unsent * self.cost >= self.store_left and self.unsent > 0

    def _room(self) -> float:
        if self.small_burst.refills:
            return self.small_burst.room - (self.unsent + self.under_way) * self.cost
        return self.limit - self.unsent * self.cost

    def _reset(self, now_us: float) -> None:
        if self.is_next_unit and not self.reset_is_assumed and self.available >= self._least():
            self._set_reset(math.inf)
            return
        if self.is_next_unit or self.reset_is_assumed or not LEAST <= self.limit < math.inf:
            self.probe(now_us)
            return
        self.has_renewed = True
        left, ends_us = self.ahead or (self.limit, math.inf)
        in_flight = (self.unanswered + self.unsent) * self.cost
        self._begin(now_us, min(self.limit, left) - in_flight)
        self._set_reset(ends_us)

    def _begin(self, now_us: float, available: float) -> None:
        self.epoch += 1
        self.available = available
        self.unanswered = 0
        self.is_probed = False
        self.lease_until_us = 0.0
        self.ahead = None
        self.lowest = math.inf
        self.began_us = self.updated_us = now_us
        self._set_reset(math.inf)


def _reset_at(report: ServerLimit, now_us: float) -> float:
    after = report.window if report.reset_after is None else report.reset_after
    return math.inf if after is None else now_us + math.ceil(after * SECOND_US)
