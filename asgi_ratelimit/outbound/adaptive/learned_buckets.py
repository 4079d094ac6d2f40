"""The buckets that requests wait for, and those of them that answers of a server report.

Times are microseconds. No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...headers import ServerLimit
from ...quotas import MAX_PERIOD, SECOND_US

# After how long a bucket is tried again if no answer says when there is more of it.
RETRY_US = 1 * SECOND_US

# After how long a request that waits for another one to leave, or to have its answer, tries again in any case.
LOOK_US = 0.1 * SECOND_US

# How long a pioneer holds up the others of its process. If it has no answer by then, another request goes as well.
PIONEER_LEASE_US = 10 * SECOND_US

# The longest pause after refusals that name no time; each is twice as long as the one before.
LONGEST_RETRY_US = 60 * SECOND_US

# The longest time, in seconds, that is learned from an answer, or for which the store holds up a bucket.
LONGEST_S = 86_400.0

# With fewer units than this, nothing is left.
LEAST = 1e-6

# No unit is taken to come back in less time, whatever a server says.
SHORTEST_UNIT_US = 1e-6

# The least rest of a window that is charged.
SHORTEST_REST_US = 1_000.0

# How much an answer counts in the moving average of what a request takes.
COST_WEIGHT = 0.1

# The part of what one request needs that the next is taken to need at least, although it may be a smaller one.
STILL_NEEDED = 0.97

# While that is the average of fewer, a request that is alone hardly waits for it. Nobody waits for long because of a
# wrong estimate, or because a request that has ended since was counted by its own.
SURE = 5

SERVER_ERROR = 500

# The part of itself by which a period may be rounded, so that processes agree on it although their answers differ.
EXACT = 0.02

# A time that was measured by so many times as many units as another one counts instead of it.
MORE = 1.25

# A window is seen from its beginning by a request that is sent no later than this part of it.
SOON = 0.25

# A period that differs by no more than this part is the same one.
EQUAL = 0.05


class Rate(NamedTuple):
    """How all processes charge a bucket in their store: ``limit`` units in ``period`` seconds.

    With ``refills``, units come back one by one; otherwise all at the end of a window. How long that takes was
    ``measured`` by the return of so many units: servers round its end, and the more units, the less that matters.
    ``until`` is 0 if ``period`` is known. Else it is only the rest of the window that was met first, which ends then,
    in seconds of the Unix epoch.
    """

    limit: float
    period: float
    refills: bool
    measured: float = 0.0
    until: float = 0.0


@dataclass(eq=False, repr=False)
class Bucket:
    """Something that requests wait for. A request goes when all buckets that it needs are ready; each one counts it.

    1. ``ready_at`` says when the next request may go.
    2. ``admit`` counts a request that may go, and ``send`` that it does so; ``withdraw`` says that it does not.
    3. ``end`` says that it has its answer, or that none will come.

    ``epoch`` counts what begins afresh, such as probes. ``admit`` and ``send`` return it: what comes of a request of an
    earlier epoch says little about the present one.

    What the store has no room for is held until ``held_until_us``, and at most ``asking`` requests ask it at a time.
    Without that bound, all that wait would ask for the same unit, each time that one comes back. Until
    ``booked_until_us``, slots are probably booked in the store, or for ``queue_s`` seconds from now, if others book.
    """

    name: str
    # The limit as far as it is known.
    limit: float = math.inf
    # The routes that wait for this bucket, in turn.
    waiting: OrderedDict[Any, None] = field(default_factory=OrderedDict)
    # Whether a request has waited for it since the last one went.
    is_awaited: bool = False
    # The number of requests that are admitted and not yet sent.
    unsent: int = 0
    # The number of requests that are sent and have no answer.
    under_way: int = 0
    epoch: int = 0
    held_until_us: float = 0.0
    booked_until_us: float = 0.0
    queue_s: float = 0.0
    asking: float = math.inf
    # How processes charge it in a store, if they do. ``rate`` is what answers have shown here. Next it becomes the
    # ``shared_rate``, which others read. Once what was used is taken from that, requests are ``charged`` by it. After a
    # window of which only the rest was seen, that is ``None`` until there is a rate for the next window.
    rate: Rate | None = None
    shared_rate: Rate | None = None
    charged: Rate | None = None
    # Whether only the rest of a window was seen.
    is_part: bool = False

    @property
    def remaining(self) -> float | None:
        """The units that may still be used, or ``None`` if that is not known, or not limited."""
        return None

    def paused_us(self, _now_us: float) -> float:
        """How long a pause still lasts."""
        return 0.0

    def ready_at(self, now_us: float) -> float:
        """When the next request may go: ``now_us``, or a later time. It is always finite, so nobody waits forever."""
        if self.held_until_us > now_us:
            return self.held_until_us
        return now_us + LOOK_US if self.unsent >= max(self.asking, 1) else now_us

    def is_certain(self, now_us: float) -> bool:
        """Whether no request may go before it is ready, whatever answers come."""
        return self.held_until_us > now_us

    def holds_up(self, _epoch: int, _now_us: float) -> bool:
        """Whether an admitted request may no longer go, because a pause has begun."""
        return False

    def admit(self, _now_us: float) -> int:
        """Count a request that may go now."""
        self.unsent += 1
        return self.epoch

    def withdraw(self, _epoch: int) -> None:
        """Note that an admitted request is not sent."""
        self.unsent -= 1

    def send(self, _now_us: float) -> int:
        """Note that an admitted request is sent now."""
        self.unsent -= 1
        self.under_way += 1
        return self.epoch

    def end(self, _epoch: int, _now_us: float) -> None:
        """Note that a request has an answer, or that none will come. The server may have counted it or not."""
        self.under_way -= 1


@dataclass(eq=False, repr=False)
class PioneerBucket(Bucket):
    """A bucket that is probed at first, and after each pause: one request at a time may go, a pioneer.

    As it is, it stands for all requests of a route, a section or a host, and has no limit of its own. Its requests are
    held up by a **pause**, after the server has refused one; by the store; and by a **lease**, while the pioneer of
    this process has no answer.
    """

    is_probed: bool = False
    # The number of requests of this epoch that are sent and have no answer.
    unanswered: int = 0
    paused_until_us: float = 0.0
    lease_until_us: float = 0.0
    # How often the server has refused a request since it served one.
    refusals: int = 0
    # How many answers to pioneers, one after another, have not reported this bucket.
    misses: int = 0

    @property
    def is_unknown(self) -> bool:
        """Whether one request of all processes goes first; after a pause, one of each process does."""
        is_first = self.limit == math.inf and self.epoch == 1
        return self.is_probed and (is_first or (self.is_part and self.shared_rate is not None))

    def paused_us(self, now_us: float) -> float:
        return max(self.paused_until_us - now_us, 0.0)

    def ready_at(self, now_us: float) -> float:
        self._move_on(now_us)
        if self.paused_until_us > now_us:
            return self.paused_until_us
        ready_us = super().ready_at(now_us)
        return max(ready_us, self.lease_until_us) if self.is_probed else ready_us

    def is_certain(self, now_us: float) -> bool:
        self._move_on(now_us)
        return self.paused_until_us > now_us or (not self.is_probed and super().is_certain(now_us))

    def holds_up(self, epoch: int, now_us: float) -> bool:
        self._move_on(now_us)
        return self.paused_until_us > now_us or (self.is_probed and epoch != self.epoch)

    def admit(self, now_us: float) -> int:
        if self.is_probed:
            self.lease_until_us = now_us + PIONEER_LEASE_US
        return super().admit(now_us)

    def withdraw(self, epoch: int) -> None:
        super().withdraw(epoch)
        if epoch == self.epoch:
            self.lease_until_us = 0.0

    def send(self, now_us: float) -> int:
        self.unanswered += 1
        if self.is_probed:
            self.lease_until_us = now_us + PIONEER_LEASE_US
        return super().send(now_us)

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
        if not wait_us:
            if self.paused_until_us > now_us:
                return
            wait_us = min(RETRY_US * 2.0 ** min(self.refusals, 10), LONGEST_RETRY_US)
        self.refusals += 1
        self.pause(now_us + wait_us)

    def probe(self, now_us: float) -> None:
        """Begin an epoch of which nothing is known: one request goes first."""
        self._begin(now_us)
        self.is_probed = True

    def open(self) -> None:
        """Note that the server has answered, or another process's pioneer: the others may go."""
        self.is_probed, self.held_until_us = False, 0.0

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


@dataclass(eq=False, repr=False)
class ReportedBucket(PioneerBucket):
    """A bucket with ``available`` units of ``limit`` that may still be used.

    Each request uses its ``cost`` when it is admitted. Units come back one by one, ``refill`` of them each microsecond,
    or all at ``reset_at_us``, when the next window begins, which is a new epoch. Answers say how many are left; they
    may be late, and in any order, so within an epoch the least units and the latest end that one of them says count.
    So nothing is refused by a server whose windows move on with each request, either.

    ``window_us`` is the length of the longest window that an answer has reported. Without a period in answers, that of
    a window that was met part-way is only its rest. So while ``is_part``, and processes share the bucket, a pioneer of
    all of them begins the next window, after ``ended_us``: what is left of that then is its length. With
    ``is_next_unit``, answers may say when the next unit comes back, and not when all are back: that of a bucket comes
    back within a part of the period, so a later time shows that it ``has_windows``.
    """

    # Its units, as answers have shown them.

    cost: float = 1.0
    # The most that a request has needed of late, which a server may set aside until it knows what the request costs.
    needed: float = 0.0
    # Whether ``cost`` is what answers have shown a request to take on average; then the latest report counts.
    is_estimated: bool = False
    # The least that answers have left, when that was, how many have come since, and how many the average is of.
    counted: tuple[float, float, int, int] = (math.inf, 0.0, 1, 0)
    # The most units that are available at once. That may be less than the limit.
    burst: float = 0.0

    # How they come back, as answers have shown it: all with a window, or one by one.

    window_us: float = 0.0
    is_next_unit: bool = False
    has_windows: bool = False
    refill: float = 0.0
    # In which time a unit comes back, if units come back one by one, and by how many units that was measured.
    unit_us: float = 0.0
    measured: float = 0.0

    # What is left in this epoch, by what answers report and by what was sent since.

    # When it began.
    began_us: float = 0.0
    available: float = math.inf
    # The units that were left according to the latest answer, and the least since there was no request under way.
    reported: float = math.inf
    lowest: float = math.inf
    reset_at_us: float = math.inf
    # Whether no answer has said that there is more at ``reset_at_us``.
    reset_is_assumed: bool = False
    # Up to when the units that came back one by one are in ``available``, and when the last request was sent.
    updated_us: float = 0.0
    used_us: float = 0.0

    # What processes share, beside its rates.

    is_part: bool = True
    ended_us: float = -math.inf
    # The end of the latest window of which all processes know that nothing is left.
    spent_until_us: float = 0.0

    @property
    def remaining(self) -> float | None:
        return None if self.is_probed else known(max(self.available, 0.0))

    @property
    def least(self) -> float:
        """How many units must be available for a request: its cost, or what it needs, or the limit if that is less."""
        return max(min(max(self.cost, self.needed), self.limit), LEAST)

    def ready_at(self, now_us: float) -> float:
        held_up_us = super().ready_at(now_us)
        if held_up_us > now_us or self.is_probed or self.available >= self.least - 1e-9:
            return held_up_us
        more_us = self._more_at(now_us)
        if self.is_estimated and not self.unsent and not self.under_way:
            _, at_us, _, samples = self.counted
            return max(min(more_us, at_us + (LONGEST_RETRY_US if samples >= SURE else LOOK_US)), now_us)
        return more_us

    def _more_at(self, now_us: float) -> float:
        """When enough units for a request come back."""
        if self.refill:
            return now_us + max(self._missing_us(), 1.0)
        if self.reset_at_us == math.inf:
            self.reset_is_assumed = True
            sent_us = now_us if self.unsent else self.used_us
            is_asked = self.unanswered or self.unsent
            self.reset_at_us = max(sent_us + PIONEER_LEASE_US, now_us + 1) if is_asked else now_us + RETRY_US
        return self.reset_at_us

    def is_certain(self, now_us: float) -> bool:
        is_open = self.is_probed or self.reset_is_assumed or self.is_estimated or self.unsent >= max(self.asking, 1)
        return super().is_certain(now_us) or not is_open

    def more_at(self, now_us: float) -> float:
        """When there is more of an exhausted bucket; ``now_us`` if that is not known."""
        if self.refill:
            return now_us + max(self._missing_us(), 0.0)
        return now_us if self.reset_is_assumed or self.reset_at_us == math.inf else self.reset_at_us

    def admit(self, now_us: float) -> int:
        self.available -= self.cost
        return super().admit(now_us)

    def withdraw(self, epoch: int) -> None:
        super().withdraw(epoch)
        if not self.is_probed:
            self.available = min(self.available + self.cost, self.limit)

    def send(self, now_us: float) -> int:
        self.used_us = now_us
        return super().send(now_us)

    def end(self, epoch: int, now_us: float) -> None:
        if self.refill:
            self._refill(now_us)  # as long as there was no room for more
        super().end(epoch, now_us)
        if epoch == self.epoch and self.reset_is_assumed and not self.unanswered:
            self.reset_at_us = min(self.reset_at_us, now_us + RETRY_US)

    def adopt(self, limit: float, cost: float, rate: Rate | None, now_us: float, ahead_us: float) -> None:
        """Go on with what another process has learned of this bucket; the store knows how much is left.

        The time of the Unix epoch is by ``ahead_us`` ahead of the time here.
        """
        if self.is_probed or limit != self.limit:
            self._begin(now_us, limit)
            self.limit, self.cost = limit, cost
            self.refill = self.unit_us = self.measured = self.burst = 0.0
        if rate != self.rate:
            self.held_until_us = 0.0
        self.rate = self.shared_rate = self.charged = rate
        if rate is None:
            return
        period_us = rate.period * SECOND_US
        self.burst, self.is_part = max(self.burst, rate.limit), rate.until > 0.0
        if self.is_part and self.reset_at_us == math.inf:
            self._set_reset(rate.until * SECOND_US - ahead_us)
        if rate.refills:
            self._measure(rate.measured, period_us / rate.limit)
        else:
            self.window_us, self.refill = max(self.window_us, period_us), 0.0
            self.has_windows |= period_us > SECOND_US  # else it is charged as a bucket, or may be one yet
        self.rate = self._learned_rate() or rate

    def learn(self, report: ServerLimit, epoch: int, now_us: float, *, is_refusal: bool = False) -> None:
        """Learn from an answer that reports this bucket; its request was one of this epoch.

        An answer to a request of an earlier epoch never raises what is available now.
        """
        self._move_on(now_us)
        after = report.window if report.reset_after is None else report.reset_after
        reset_at_us = math.inf if after is None else now_us + math.ceil(min(after, LONGEST_S) * SECOND_US)
        left = report.remaining or 0.0
        if epoch < self.epoch:
            self._learn_late(left, reset_at_us)
            return
        was_probed = self.is_probed
        self._learn_units(report, now_us, is_refusal=is_refusal)
        self._learn_times(report)
        self.updated_us, self.reported, self.misses = now_us, left, 0
        self._learn_left(self._exact(report, left), reset_at_us, now_us)
        self.rate = self._learned_rate(is_new=was_probed) or self.rate

    def _learned_rate(self, *, is_new: bool = False) -> Rate | None:
        """The rate to charge from now on: the shared one, unless answers have shown another or a longer period.

        Of a window that was met part-way, all processes know the same rest, until another one ``is_new``.
        """
        period_us = self.limit / self.refill if self.refill else self.window_us
        is_limit = not self.is_probed and not self.is_estimated and 1.0 <= self.limit < math.inf and self.cost > 0.0
        if not is_limit or not 1.0 <= period_us <= MAX_PERIOD * SECOND_US / 2:
            return None
        refills = self.refill > 0.0 or (self.is_next_unit and not self.has_windows and self.window_us > SECOND_US)
        period_us *= self.burst / self.limit if refills else 1.0
        rate = Rate(self.burst, _rounded(period_us / SECOND_US), refills, self.measured)
        shared = self.shared_rate
        is_longer = shared is not None and rate.period > shared.period * (1.0 + EQUAL)
        if shared is not None and self.is_part and not is_new and not is_longer:
            return shared._replace(limit=rate.limit)
        if shared is None or shared.until or (rate.limit, rate.refills) != (shared.limit, shared.refills):
            return rate
        is_shorter = rate.period < shared.period * (1.0 - EQUAL) and rate.measured >= shared.measured * MORE > 0.0
        return rate if is_shorter or is_longer else shared

    def _learn_units(self, report: ServerLimit, now_us: float, *, is_refusal: bool) -> None:
        """Learn how many units there are, and what a request takes of them."""
        limit = math.inf if report.limit is None else report.limit
        if limit != self.limit:
            self.refill = self.unit_us = self.measured = self.burst = 0.0
        self.limit = limit
        is_counted = report.cost is not None or report.unit in ("requests", "share")
        self.is_estimated = not is_counted and report.limit is not None
        if self.is_estimated:
            self._learn_cost(report.remaining or 0.0, now_us, is_refusal=is_refusal)
        elif report.cost is not None:
            self.cost = min(report.cost, limit)  # of more, a server takes a full bucket at most, or refuses
        else:
            self.cost = 1.0 if report.unit == "requests" else 0.0
        self.needed = max(report.needed or 0.0, self.needed * STILL_NEEDED)
        self.is_next_unit = report.reset_means == "next unit"
        self.burst = max(self.burst, min((report.remaining or 0.0) + 1.0, limit)) if self.is_next_unit else limit

    def _learn_times(self, report: ServerLimit) -> None:
        """Learn when units come back: whether there are windows, how long they are, or how long each unit takes."""
        window_us = (report.window or report.reset_after or 0.0) * SECOND_US
        if report.reset_after is not None and report.reset_means == "window end":
            window_us = max(window_us, SHORTEST_REST_US)  # the window has ended while its answer was under way
        if self.is_probed and self.ended_us > -math.inf:
            is_whole = self.used_us - self.ended_us <= window_us * SOON
            self.is_part &= not (is_whole or abs(window_us - self.window_us) <= window_us * EQUAL)
        self.is_part &= not (report.window or report.refill)
        self.window_us = max(self.window_us, window_us)
        after_us, unit_us = (report.reset_after or 0.0) * SECOND_US, self.window_us / max(self.limit, 1.0)
        self.has_windows |= not self.is_next_unit or after_us >= unit_us + SECOND_US  # times are rounded up to seconds
        if self.is_next_unit and self.has_windows:  # another process may have taken it for a bucket
            self.refill = 0.0
        if not LEAST <= self.limit < math.inf:
            return
        if report.refill and report.refill * LONGEST_S >= self.least:
            self.refill = report.refill / SECOND_US
        elif report.reset_means == "full refill" and report.reset_after:
            used = self.limit - (report.remaining or 0.0)
            if used > 0.0:
                self._measure(used, max(report.reset_after * SECOND_US / used, SHORTEST_UNIT_US))

    def _measure(self, units: float, unit_us: float) -> None:
        """Take over how long a unit takes to come back, as it was measured by the return of so many units.

        Of times that were measured by about as many, the longest counts.
        """
        if units >= self.measured * MORE:
            self.measured, self.unit_us = units, unit_us
        elif units * MORE >= self.measured:
            self.unit_us = max(self.unit_us, unit_us)
        self.refill, self.is_part = 1.0 / self.unit_us, False

    def _learn_cost(self, left: float, now_us: float, *, is_refusal: bool) -> None:
        """Learn what a request takes of a unit of which it takes many, such as tokens, by what answers have left.

        Other processes use the same units. Their part is in the average, as it is in what is under way. A refusal has
        taken nothing.
        """
        before, at_us, answers, samples = self.counted
        used = min(before + self.refill * (now_us - at_us), self.limit) - left
        if used > 0.0 and (before == math.inf or not is_refusal):
            self.cost += (used / answers - self.cost) * max(COST_WEIGHT, 1.0 / max(samples, 1))
            self.counted = left, now_us, 1, samples + 1
        elif self.under_way:  # it may have been overtaken
            self.counted = before, at_us, answers + (not is_refusal), samples
        else:
            self.counted = left, now_us, 1, samples

    def _exact(self, report: ServerLimit, left: float) -> float:
        """The units that an answer has left. If they come back one by one, it rounds them down, but not their time."""
        if not self.refill or report.reset_after is None or report.reset_means != "full refill":
            return left
        exact = self.limit - report.reset_after * SECOND_US * self.refill
        return min(max(exact, left), left + 0.999)

    def _learn_late(self, left: float, reset_at_us: float) -> None:
        """Learn from an answer to a request of an earlier epoch, if it is about the present one."""
        slack = min(self.window_us / 2, RETRY_US)
        if reset_at_us != math.inf and reset_at_us > self.began_us + slack and not self.is_probed:
            self.available = min(self.available, left)
            if self.reset_at_us == math.inf:
                self._set_reset(reset_at_us)

    def _learn_left(self, left: float, reset_at_us: float, now_us: float) -> None:
        """Learn from the units that an answer has left, and from the time at which there is more."""
        if self.is_probed or self.is_estimated:
            self.is_probed = False
            self.available = left - (self.unsent + self.under_way) * self.cost
            self._set_reset(reset_at_us)
        elif self.is_next_unit:
            self._learn_next_unit(left)
            self._set_reset(reset_at_us)
        elif not self.refill and left - self._in_flight() > self.available and self._is_later(reset_at_us):
            self._begin(now_us, left - self._in_flight())
            self._set_reset(reset_at_us)
        else:
            self.available = min(self.available, left)
            if self.reset_is_assumed or self.reset_at_us == math.inf or self.reset_at_us < reset_at_us < math.inf:
                self._set_reset(reset_at_us)

    def _learn_next_unit(self, left: float) -> None:
        """Learn from the units left by an answer that says nothing of a window: the last one of several counts."""
        self.lowest = min(self.lowest, left)
        if self.under_way:
            self.available = min(self.available, left)
        else:
            self.available, self.lowest = self.lowest - self.unsent * self.cost, math.inf

    def _is_later(self, reset_at_us: float) -> bool:
        """Whether the server has begun a window that this bucket has not: its end is much later."""
        after_us = self.reset_at_us + max(self.window_us / 2, 50_000.0)
        return not self.reset_is_assumed and after_us < reset_at_us < math.inf

    def _in_flight(self) -> float:
        """The units of requests of this epoch that have no answer."""
        return (self.unanswered + self.unsent) * self.cost

    def _set_reset(self, at_us: float) -> None:
        self.reset_at_us, self.reset_is_assumed = at_us, False

    def _move_on(self, now_us: float) -> None:
        """Apply everything that has happened until now: the end of a pause or a window, and units that came back."""
        super()._move_on(now_us)
        if self.refill:
            self._refill(now_us)
        elif self.reset_at_us <= now_us and not self.is_probed:
            self._reset(now_us)

    def _refill(self, now_us: float) -> None:
        """Add units that have come back one by one, as far as there is room for them."""
        more = max(now_us - self.updated_us, 0.0) * self.refill
        room = self.limit - self.unsent * self.cost
        self.available = min(self.available + more, max(room, self.available))
        self.updated_us = now_us

    def _missing_us(self) -> float:
        """How long it takes until enough units for a request have come back one by one."""
        return math.ceil((self.least - self.available) / self.refill)

    def _reset(self, now_us: float) -> None:
        """Begin the next window; a pioneer goes first if it is not known how many units it has, or how long it is."""
        is_met = self.is_part and self.shared_rate is not None and not self.reset_is_assumed
        is_busy = self.waiting or self.unsent or self.under_way or self.window_us < LOOK_US
        if is_met and is_busy:
            self.ended_us, self.charged = self.reset_at_us, None
            self.probe(now_us)
        elif self.is_next_unit and not self.reset_is_assumed and self.available >= self.least:
            self._set_reset(math.inf)
        elif self.is_next_unit or self.reset_is_assumed or not LEAST <= self.limit < math.inf:
            self.probe(now_us)
        else:
            self._begin(now_us, self.limit - self._in_flight())

    def _begin(self, now_us: float, available: float = 0.0) -> None:
        super()._begin(now_us)
        self.available = available
        self.lowest = math.inf
        self.began_us = self.updated_us = now_us
        self._set_reset(math.inf)


def known(units: float) -> float | None:
    """A number of units, or ``None`` if it is infinite: not known, or not limited."""
    return None if math.isinf(units) else units


def _rounded(seconds: float) -> float:
    """A time with as few digits as possible: 1 for 0.993, 60 for 59.2."""
    rounded = [float(f"{seconds:.{digits}e}") for digits in range(3)]
    return next(each for each in rounded if abs(each - seconds) <= EXACT * seconds)
