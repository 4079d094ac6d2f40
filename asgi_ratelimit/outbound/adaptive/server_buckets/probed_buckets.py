"""Buckets about which nothing is known until one request, the pioneer, has its answer.

Times are microseconds. No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ....quotas import SECOND_US
from .bucket import RETRY_US, Bucket

LEASE_US = 10 * SECOND_US
"""How long a pioneer holds up the others. If it has no answer by then, another request goes as well."""

LONGEST_RETRY_US = 60 * SECOND_US
"""The longest pause after refusals that name no time; each is twice as long as the one before."""


@dataclass(eq=False, repr=False)
class ProbedBucket(Bucket):
    """A bucket that is probed at first, and after each pause: one request at a time may go, a pioneer.

    Three things hold up its requests:

    * a **pause**, after the server has refused one; a pioneer goes at its end;
    * a **hold**, while other processes have used all that the store has, or one of them has a pioneer;
    * a **lease**, while the pioneer of this process has no answer.

    ``epoch`` counts what begins afresh, such as probes. A request belongs to the epoch in which it was sent, and its
    answer says little about a later one.
    """

    is_probed: bool = False
    epoch: int = 0
    unanswered: int = 0
    """The number of requests of this epoch that are sent and have no answer."""
    paused_until_us: float = 0.0
    held_until_us: float = 0.0
    lease_until_us: float = 0.0
    refusals: int = 0
    """How often the server has refused a request since it served one."""
    misses: int = 0
    """How many answers to pioneers, one after another, have not reported this bucket."""

    def paused_us(self, now_us: float) -> float:
        return max(self.paused_until_us - now_us, 0.0)

    def is_held(self, now_us: float) -> bool:
        """Whether no request may go, whatever this process knows to be available."""
        return max(self.paused_until_us, self.held_until_us) > now_us

    def ready_at(self, now_us: float) -> float:
        self._move_on(now_us)
        if self.paused_until_us > now_us:
            return self.paused_until_us
        if self.held_until_us > now_us:
            return self.held_until_us
        return max(now_us, self.lease_until_us) if self.is_probed else now_us

    def not_before(self, now_us: float) -> float:
        self._move_on(now_us)
        if self.paused_until_us > now_us:
            return self.paused_until_us
        return now_us if self.is_probed else max(now_us, self.held_until_us)

    def holds_up(self, epoch: int, now_us: float) -> bool:
        self._move_on(now_us)
        return self.paused_until_us > now_us or (self.is_probed and epoch != self.epoch)

    def admit(self, now_us: float) -> int:
        super().admit(now_us)
        if self.is_probed:
            self.lease_until_us = now_us + LEASE_US
        return self.epoch

    def withdraw(self, epoch: int) -> None:
        super().withdraw(epoch)
        if self.is_probed and epoch == self.epoch:
            self.lease_until_us = 0.0

    def send(self, now_us: float) -> int:
        super().send(now_us)
        self.unanswered += 1
        if self.is_probed:
            self.lease_until_us = now_us + LEASE_US
        return self.epoch

    def end(self, epoch: int, now_us: float) -> None:
        super().end(epoch, now_us)
        if epoch == self.epoch:
            self.unanswered -= 1
            self.lease_until_us = 0.0

    def pause(self, until_us: float) -> None:
        """Let no request go before ``until_us``, and one pioneer then."""
        self.paused_until_us = max(self.paused_until_us, until_us)

    def refuse(self, now_us: float, wait_us: float | None) -> None:
        """Pause after the server has refused a request; without a time, each pause in a row is twice as long.

        A refusal without a time, of a request that was sent before a pause, does not make the pause longer.
        """
        if wait_us is None:
            if self.paused_until_us > now_us:
                return
            wait_us = min(RETRY_US * 2.0 ** min(self.refusals, 10), LONGEST_RETRY_US)
        self.refusals += 1
        self.pause(now_us + wait_us)

    def hold(self, until_us: float) -> None:
        """Let no request go before ``until_us``, because of what other processes do; 0 if nothing holds it any more."""
        self.held_until_us = until_us

    def probe(self, now_us: float) -> None:
        """Begin an epoch of which nothing is known: one request goes first."""
        self._begin(now_us)
        self.is_probed = True

    def miss(self, now_us: float) -> None:
        """Note that the answer to a pioneer says nothing about this bucket: another pioneer goes later."""
        if self.is_probed:
            self.misses += 1
            self.pause(now_us + RETRY_US)

    def is_idle(self, now_us: float) -> bool:
        """Whether nothing is lost when the bucket is forgotten."""
        is_used = self.waiting or self.unanswered or self.unsent
        return not is_used and max(self.paused_until_us, self.lease_until_us) <= now_us

    def _move_on(self, now_us: float) -> None:
        """Apply everything that has happened until now, such as the end of a pause."""
        if 0.0 < self.paused_until_us <= now_us:
            self.paused_until_us = 0.0
            self.probe(now_us)

    def _begin(self, _now_us: float) -> None:
        """Begin an epoch."""
        self.epoch += 1
        self.unanswered = 0
        self.is_probed = False
        self.lease_until_us = 0.0


class PioneerBucket(ProbedBucket):
    """A bucket of all requests of a route, a section or a host: it has pioneers and pauses, and no limit of its own."""

    @property
    def limit(self) -> float:
        return math.inf

    def open(self, epoch: int) -> None:
        """Note the answer to a request of this epoch: the others may go."""
        if epoch == self.epoch:
            self.is_probed = False
