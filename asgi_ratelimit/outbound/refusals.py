"""The effects of a refusal: a pause of its key, or a slowdown, and a back-off before its request is sent again.

**Jitter** makes the service's count of requests differ from ours, so it refuses one now and then. Such a refusal is no
reason to stop all requests of its key for a whole second, which is the least that ``Retry-After`` can say. Each such
refusal makes the requests of its key cost 3 % more for a minute, so that they keep a greater distance. That happens at
most three times at once: a further refusal counts like any other, and pauses the key.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from random import random
from typing import Any

from ..clock import SystemClock
from ..decision import Take, with_charges
from ..headers.header_values import asked_waits, unix_time
from ..quotas import SECOND_US, TokenBucket
from ..waiting.drivers import Flow
from ..waiting.waiter import SlotWaiter
from .exchange import can_be_sent_again
from .pauses import Pauses
from .request_values import PacedRequest

# The part by which the cost of a key's requests grows for each refusal, at most so often, and for how long.
STEP, MOST_STEPS, STEP_US = 0.03, 3, 60_000_000.0

# A refusal that asks for less than this many seconds is jitter.
CERTAIN_S = 0.05

# A refusal that asks for this many seconds may be jitter: services that count in whole seconds cannot say less.
ROUNDED_S = 1.0

# The longest back-off after a refusal without a ``Retry-After``, at first and at last; each may be twice as long.
FIRST_BACKOFF_US, LONGEST_BACKOFF_US, MOST_DOUBLINGS = 500_000.0, 60_000_000.0, 7

# The statuses with which a service asks its clients to come back later (RFC 6585, RFC 9110).
THROTTLED = (429, 503)

# The longest pause, in seconds, that an answer can ask for; a longer one is ignored.
LONGEST_PAUSE = 86_400.0


class Refusals:
    """Obeys the refusals of one transport's requests. Each request is sent again at most ``retries`` times."""

    def __init__(self, pauses: Pauses, retries: int, waiter: SlotWaiter) -> None:
        self._pauses = pauses
        self._retries = retries
        self._now_us, self._clock = waiter.now_us, waiter.clock or SystemClock()
        # The keys that were slowed down, with the end of each of their steps.
        self._slow: dict[str, list[float]] = {}

    def backoff_us(self, paced: PacedRequest, response: Any, is_degraded: bool) -> Flow[float | None]:
        """Microseconds to sleep before a refused request is sent again; ``None`` if the refusal is final.

        If the refusal asks for a pause, it begins here, and the next slot is after it. ``is_degraded`` says that the
        store was out when the request was sent.
        """
        pause_s = pause_of(response.headers, self._clock.now_us() / SECOND_US)
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

    def slowed(self, take: Take) -> Take:
        """The take with the costs of a key that is slowed down, as far as they can still be admitted.

        A cost above the burst of a bucket waits until the bucket is full; a window never admits one above its limit.
        """
        steps = self._steps(take.charges[0].key) if self._slow else 0
        if not steps:
            return take
        may_exceed = take.max_wait > 0.0 and len({charge.key for charge in take.charges}) == 1
        slowed = []
        for charge in take.charges:
            is_unbounded = may_exceed and isinstance(charge.quota, TokenBucket)
            most = math.inf if is_unbounded else max(charge.quota.most, charge.cost)
            slowed.append(replace(charge, cost=min(charge.cost * (1.0 + STEP * steps), most)))
        return with_charges(take, tuple(slowed))


def pause_of(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds for which a refusal, received at the Unix time ``now``, asks to pause; ``None`` if it does not ask.

    The names of ``headers`` are in lower case. Milliseconds, which some vendors send, are more exact and come first.
    ``Retry-After`` is a number of seconds, for which decimals are accepted although RFC 9110 allows none, or a date. A
    date counts from the date of the answer, because clocks differ.
    """
    date = unix_time(headers.get("date"))
    waits = asked_waits(headers, now if date is None else date)
    return next((wait for wait in waits if wait <= LONGEST_PAUSE), None)
