"""The effects of a refusal: a pause of its key, or a slowdown, and a back-off before its request is sent again.

**A pause** that a service asks for is written to the store, and all processes that share the store observe it. It is
a bucket of its own, beside those of the quotas. While the key is paused, its level is above its burst by the rest of
the pause in microseconds, and it drains at a million units a second. Every take of the key has the condition that this
bucket has room, so its slot is not before the end of the pause. A pause begins with a best-effort take that fills the
bucket to the length of the pause. So if several processes begin a pause at the same time, the longest one counts; they
do not add up.

**Jitter** makes the service's count of requests differ from ours, so it refuses one now and then. Such a refusal is no
reason to stop all requests of its key for a whole second, which is the least that ``Retry-After`` can say. Each such
refusal makes the requests of its key cost 3 % more for a minute, so that they keep a greater distance. That happens at
most three times at once: a further refusal counts like any other, and pauses the key.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from random import random
from typing import Any
from weakref import WeakKeyDictionary

from ..clock import SystemClock
from ..decision import Charge, Condition, Decision, Take
from ..errors import StoreError
from ..headers.header_values import asked_waits, unix_time
from ..quotas import SECOND_US, TokenBucket
from ..stores import MemoryStore, Store
from ..waiting.drivers import CallStore, Flow, take_all
from ..waiting.waiter import SlotWaiter
from .exchange import can_be_sent_again
from .request_values import PacedRequest

PAUSE = TokenBucket(1000.0, 0.001, 1.0, name="pause")
"""A unit drains in a microsecond, so that levels are whole units, and pauses are exact."""

ROUNDING_US = 10.0
"""A slot that is booked for the end of a pause is at most so much before it: times are rounded."""

STEP, MOST_STEPS, STEP_US = 0.03, 3, 60_000_000.0
"""The part by which the cost of a key's requests grows for each refusal, at most so often, and for how long."""

CERTAIN_S = 0.05
"""A refusal that asks for less than this many seconds is jitter."""

ROUNDED_S = 1.0
"""A refusal that asks for this many seconds may be jitter: services that count in whole seconds cannot say less."""

FIRST_BACKOFF_US, LONGEST_BACKOFF_US, MOST_DOUBLINGS = 500_000.0, 60_000_000.0, 7
"""The longest back-off after a refusal without a ``Retry-After``, at first and at last; each may be twice as long."""

THROTTLED = (429, 503)
"""The statuses with which a service asks its clients to come back later (RFC 6585, RFC 9110)."""

LONGEST_PAUSE = 86_400.0
"""The longest pause, in seconds, that an answer can ask for; a longer one is ignored."""


class Pauses:
    """The pauses of the keys of the limiter ``name``. ``now_us`` is a clock in microseconds that never jumps."""

    def __init__(self, store: Store, name: str, now_us: Callable[[], float]) -> None:
        self._store = store
        self._name = name
        self._now_us = now_us
        self._begins_all = isinstance(store, MemoryStore)
        """Whether all pauses in the store were begun in this process."""
        self._ends: dict[str, float] = {}
        if self._begins_all:
            self._ends = _ends.setdefault(store, {}).setdefault(name, {})

    def take(self, charges: tuple[Charge, ...], max_wait: float) -> Take:
        """A take of these charges that waits for the end of the pause of its first key.

        The condition comes right after the first charge, because the last charge is that of a shared key, if there is
        one.
        """
        if self._begins_all and charges[0].key not in self._ends:
            return Take(charges, max_wait)
        first, *others = charges
        condition = Condition(PAUSE, first.key, 0, self._name)
        return Take((first, condition, *others), max_wait)

    def begin(self, key: str, seconds: float, quota: TokenBucket = PAUSE) -> Flow[None]:
        """Pause a key for this long, if it is not already paused for longer; ``quota`` differs only in its name."""
        if seconds > 0.0:
            now_us = self._now_us()
            for ended in [paused for paused, end_us in list(self._ends.items()) if end_us <= now_us]:
                self._ends.pop(ended, None)
            self._ends[key] = max(self._ends.get(key, 0.0), now_us + seconds * SECOND_US)
            level = math.ceil(seconds * SECOND_US) + PAUSE.burst
            take = Take((Charge(_with_burst(quota, level), key, level, self._name),), best_effort=True)
            with contextlib.suppress(StoreError):
                yield CallStore(self._store, take_all(self._store, take))

    def has_begun(self, key: str, decision: Decision) -> Flow[bool]:
        """Whether a pause has begun that ends after a decision's slot; a degraded one was made by another clock."""
        now_us, left_us = yield from self._peek(key)
        slot_us = decision.now_us + decision.wait_us + ROUNDING_US
        return left_us > 0.0 and (decision.degraded or now_us + left_us > slot_us)

    def left_us(self, key: str) -> Flow[float]:
        """Microseconds until the end of the pause of a key; without the store, of one that began here."""
        return (yield from self._peek(key))[1]

    def _peek(self, key: str) -> Flow[tuple[float, float]]:
        """The time of the store, and what is left of the pause of a key; if only this process knows, at any time."""
        if not self._begins_all or key in self._ends:
            with contextlib.suppress(StoreError):
                take = Take((Condition(PAUSE, key, 0, self._name),))
                peeked: Decision = yield CallStore(self._store, self._store.peek(take))
                return peeked.now_us, peeked.retry_after * SECOND_US
        return math.inf, self.left_here_us(key)

    def left_here_us(self, key: str) -> float:
        """Microseconds until the end of a pause that began here; 0 or less if there is none."""
        return self.end_here_us(key) - self._now_us()

    def end_here_us(self, key: str) -> float:
        """When a pause ends that began here; 0 if there is none."""
        return self._ends.get(key, 0.0)


_ends: WeakKeyDictionary[Store, dict[str, dict[str, float]]] = WeakKeyDictionary()
"""When pauses end that have begun in this process, by store, name and key, for stores that no other process uses."""


def _with_burst(quota: TokenBucket, burst: float) -> TokenBucket:
    """The quota that fills the bucket up to a level. All such quotas share one stamp, so that they share the level."""
    filling = replace(quota, burst=burst)
    object.__setattr__(filling, "stamp", quota.stamp)
    return filling


class Refusals:
    """Obeys the refusals of one transport's requests. Each request is sent again at most ``retries`` times."""

    def __init__(self, pauses: Pauses, retries: int, waiter: SlotWaiter) -> None:
        self._pauses = pauses
        self._retries = retries
        self._now_us, self._clock = waiter.now_us, waiter.clock or SystemClock()
        self._slow: dict[str, list[float]] = {}
        """The keys that were slowed down, with the end of each of their steps."""

    def backoff_us(self, paced: PacedRequest, response: Any, is_degraded: bool) -> Flow[float | None]:
        """Microseconds to sleep before a refused request is sent again; ``None`` if the refusal is final.

        If the refusal asks for a pause, it begins here, and the next slot is after it. ``is_degraded`` says that the
        store was out when the request was sent.
        """
        pause_s = pause_of(response.status_code, response.headers, self._clock.now_us() / SECOND_US)
        is_jitter = pause_s is not None and response.status_code == 429 and self._slow_down(paced, pause_s, is_degraded)
        if pause_s is not None and not is_jitter:
            yield from self._pauses.begin(paced.key, pause_s)
        if paced.attempts > self._retries or not can_be_sent_again(paced.request):
            return None
        longest_us = min(FIRST_BACKOFF_US * 2 ** min(paced.attempts - 1, MOST_DOUBLINGS), LONGEST_BACKOFF_US)
        wait_us = float(math.ceil(random() * longest_us if pause_s is None else pause_s * SECOND_US))
        if self._now_us() + wait_us > paced.deadline_us:
            return None
        return wait_us if pause_s is None or is_jitter else 0.0

    def _slow_down(self, paced: PacedRequest, pause_s: float, is_degraded: bool) -> bool:
        """Slow a key down if its refusal is jitter; return whether it is.

        It may be if the store has admitted the request, and not this process on its behalf.
        """
        may_be_jitter = pause_s < CERTAIN_S or (pause_s <= ROUNDED_S and not is_degraded)
        if not may_be_jitter or self._steps(paced.key) >= MOST_STEPS:
            return False
        now_us = self._now_us()
        current = {key: left for key, ends in self._slow.items() if (left := [end for end in ends if end > now_us])}
        self._slow = {**current, paced.key: [*current.get(paced.key, ()), now_us + STEP_US]}
        return True

    def _steps(self, key: str) -> int:
        """The number of refusals for which a key is slowed down."""
        now_us = self._now_us()
        return sum(end > now_us for end in self._slow.get(key, ()))

    def slowed(self, charges: tuple[Charge, ...], max_wait: float) -> tuple[Charge, ...]:
        """The charges with the costs of a key that is slowed down, as far as they can still be admitted.

        A cost above the burst of a bucket waits until the bucket is empty; a window never admits one above its limit.
        """
        steps = self._steps(charges[0].key) if self._slow else 0
        if not steps:
            return charges
        may_exceed = max_wait > 0.0 and len({charge.key for charge in charges}) == 1
        slowed = []
        for charge in charges:
            is_unbounded = may_exceed and isinstance(charge.quota, TokenBucket)
            most = math.inf if is_unbounded else max(charge.quota.most, charge.cost)
            slowed.append(replace(charge, cost=min(charge.cost * (1.0 + STEP * steps), most)))
        return tuple(slowed)


def pause_of(status: int, headers: Mapping[str, str], now: float) -> float | None:
    """Seconds for which an answer, received at the Unix time ``now``, asks to pause; ``None`` if it does not ask.

    The names of ``headers`` are in lower case. Milliseconds, which some vendors send, are more exact and come first.
    ``Retry-After`` is a number of seconds, for which decimals are accepted although RFC 9110 allows none, or a date. A
    date counts from the date of the answer, because clocks differ.
    """
    if status not in THROTTLED:
        return None
    date = unix_time(headers.get("date"))
    waits = asked_waits(headers, now if date is None else date)
    return next((wait for wait in waits if wait <= LONGEST_PAUSE), None)
