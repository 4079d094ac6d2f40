"""Takes over several keys, the last of which is shared: 10 in 10 seconds for each guild, and 50/s for all of them.

A slot booked far ahead in the own quota would keep a part of the shared quota unused until then, and one busy key would
stop all the others. So the callers of an own key wait without booking. One at a time finds out when its own quota
allows the take, sleeps until then, and books all charges at once. Only the short wait for the shared quota is booked
ahead. On a cluster, where a store refuses to book over several slots of the cluster, not even that is booked: then the
callers of the shared key go one at a time, and each sleeps until the store grants its take.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import TypeAlias

from ..algorithms import decide, wait
from ..clock import Clock, time_of
from ..decision import Decision, Take, is_outage
from ..quotas import SECOND_US
from ..stores import Store
from .concurrency import ConcurrencyLimit, Place
from .flow_drivers import CallStore, Flow, sleep
from .timeouts import as_refused, pace_timeout

Renewed: TypeAlias = Callable[[Take], Take]
"""Returns a take of the same buckets, under the quotas that now apply."""

SLACK_US = 50_000.0
"""How much further ahead than foreseen the shared quota may be booked, because others book between query and take.

What another process takes from the own quota in that time may keep the shared one unused for this long.
"""

AHEAD_US = 10_000.0
"""How long before its slot a caller lets the next one of its own keys book; until then, other keys book in turn."""

SHORTEST_SLEEP_US = 1_000.0
"""The shortest sleep before another look at a store that does not book ahead."""


def unchanged(take: Take) -> Take:
    """The take under the quotas that it came with."""
    return take


def own_part(take: Take) -> Take | None:
    """The charges of all keys but the last one, which is shared; ``None`` if there is only one key."""
    if len(take.charges) == 1:
        return None
    shared = take.charges[-1].key
    own = tuple([charge for charge in take.charges if charge.key != shared])
    return Take(own, take.max_wait) if own else None


def _buckets(own: Take) -> Hashable:
    return tuple([charge.bucket for charge in own.charges])


class OwnKeyBooking:
    """Books takes over several keys. ``try_take`` sends a take to the store, and returns the decision."""

    def __init__(
        self,
        store: Store,
        clock: Clock | None,
        one_at_a_time: ConcurrencyLimit,
        try_take: Callable[[Take], Flow[Decision]],
        renewed: Renewed = unchanged,
    ) -> None:
        self._store = store
        self._clock = clock
        self._now_us = time_of(clock)
        self._one_at_a_time = one_at_a_time
        self._try_take = try_take
        self._renewed = renewed

    def book(self, take: Take, own: Take, priority: float = 0.0) -> Flow[tuple[Decision, Place]]:
        """Wait for the own keys, then book all charges; the caller has to ``leave``. Raises ``PaceTimeout``."""
        deadline_us = self._now_us() + take.max_wait_us
        key = _buckets(own)
        if take.max_wait < math.inf:
            yield from self._require_near(own, 0 if priority > 0.0 else self._one_at_a_time.ahead(key))
        place = yield from self._wait_and_enter(key, take, deadline_us, priority)
        try:
            return (yield from self._book_as_first(take, own, deadline_us)), place
        except BaseException:
            self.leave(place)
            raise

    def leave(self, place: Place) -> None:
        """Let the next caller of the own keys book."""
        self._one_at_a_time.leave(place)

    def _wait_and_enter(self, key: Hashable, take: Take, deadline_us: float, priority: float = 0.0) -> Flow[Place]:
        place = yield from self._one_at_a_time.wait_and_enter(key, self._clock, deadline_us, priority)
        if place is None:
            peeked: Decision = yield CallStore(self._store, self._store.peek(take))
            raise pace_timeout(take, as_refused(peeked, 0.0))
        return place

    def _require_near(self, own: Take, ahead: int) -> Flow[None]:
        """Raise ``PaceTimeout`` if the own keys cannot allow the take in time, after the callers ahead of this one."""
        peeked: Decision = yield CallStore(self._store, self._store.peek(own))
        states = list(peeked.stored)
        for _ in range(ahead + 1):
            wait_us, after = decide(own.charges, states, peeked.now_us, own.max_wait_us)
            if after is None:
                raise pace_timeout(own, Decision(own, False, wait_us, states, peeked.now_us))
            states = after

    def _book_as_first(self, take: Take, own: Take, deadline_us: float) -> Flow[Decision]:
        ahead_us, slack_us = 0.0, SLACK_US
        while True:
            take, own = self._renewed(take), self._renewed(own)
            decision = yield from self._try_take(replace(take, max_wait=ahead_us / SECOND_US))
            if decision.allowed:
                return decision
            own_us, longest_us = self._waits_in_time(take, own, decision, deadline_us)
            if own_us > 0.0:
                yield from sleep(self._clock, own_us)
                ahead_us = 0.0
            elif ahead_us == 0.0 or longest_us > ahead_us:
                ahead_us, slack_us = longest_us + slack_us, 2 * slack_us
            else:  # the store does not book ahead
                in_order = yield from self._take_in_order(take, own, deadline_us, longest_us)
                if in_order is not None:
                    return in_order
                ahead_us = 0.0

    def _take_in_order(self, take: Take, own: Take, deadline_us: float, wait_us: float) -> Flow[Decision | None]:
        """Wait for the shared quota without booking; ``None`` if the own quota no longer allows the take.

        One caller of the shared key at a time tries again, so that not all of them do when one slot comes.
        """
        key = "shared", tuple([charge.bucket for charge in take.charges if charge not in own.charges])
        if self._one_at_a_time.ahead(key):
            wait_us = 0.0
        place = yield from self._wait_and_enter(key, take, deadline_us)
        try:
            while True:
                if wait_us > 0.0:
                    yield from sleep(self._clock, wait_us)
                take, own = self._renewed(take), self._renewed(own)
                decision = yield from self._try_take(replace(take, max_wait=0.0))
                if decision.allowed:
                    return decision
                own_us, longest_us = self._waits_in_time(take, own, decision, deadline_us)
                if own_us > 0.0:
                    return None
                wait_us = max(longest_us, SHORTEST_SLEEP_US)
        finally:
            self._one_at_a_time.leave(place)

    def _waits_in_time(self, take: Take, own: Take, decision: Decision, deadline_us: float) -> tuple[float, float]:
        """The waits of a refused take. Raises ``PaceTimeout`` if the longest one ends after the deadline."""
        own_us, longest_us = _waits(take, own, decision)
        too_long_us = longest_us if longest_us == math.inf else self._now_us() + longest_us - deadline_us
        if is_outage(decision) or too_long_us > 0.0:
            raise pace_timeout(take, as_refused(decision, too_long_us))
        return own_us, longest_us


def _waits(take: Take, own: Take, decision: Decision) -> tuple[float, float]:
    """Microseconds until the own part of a refused take would conform, and until all of it would."""
    waits = [
        wait(charge.quota, state, decision.now_us, charge.cost, math.inf)
        for charge, state in zip(decision.take.charges, decision.stored)
    ]
    return max([each for charge, each in zip(take.charges, waits) if charge in own.charges]), max(waits)
