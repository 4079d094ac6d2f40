"""The effects of a refusal: a pause of its key, a slowdown, and a back-off before its request is sent again."""

from __future__ import annotations

import math
from collections.abc import Mapping
from random import random
from typing import Any

from ...clock import SystemClock
from ...headers.answers import asked_waits, unix_time
from ...quotas import SECOND_US
from ...waiting import Flow, SlotWaiter
from .exchange import can_be_sent_again
from .pauses import Pauses
from .request_values import PacedRequest
from .slowdown import Slowdown

FIRST_BACKOFF_US = 500_000.0
"""The longest first back-off after a refusal without a ``Retry-After``; each later one may be twice as long."""

LONGEST_BACKOFF_US = 60_000_000.0

MOST_DOUBLINGS = 7
"""After so many, it is the longest one."""

TOO_MANY = 429


class Refusals:
    """Obeys the refusals of one transport's requests. Each request is sent again at most ``retries`` times."""

    def __init__(self, pauses: Pauses, slowdown: Slowdown, retries: int, waiter: SlotWaiter) -> None:
        self._pauses = pauses
        self._slowdown = slowdown
        self._retries = retries
        self._now_us, self._clock = waiter.now_us, waiter.clock or SystemClock()

    def backoff_us(self, paced: PacedRequest, response: Any, is_degraded: bool) -> Flow[float | None]:
        """Microseconds to sleep before a refused request is sent again; ``None`` if the refusal is final.

        If the refusal asks for a pause, it begins here, and the next slot is after it. ``is_degraded`` says that the
        store was out when the request was sent.
        """
        pause_s = pause_of(response.status_code, response.headers, self._clock.now_us() / SECOND_US)
        is_jitter = False
        if pause_s is not None and response.status_code == TOO_MANY:
            is_jitter = self._slowdown.slow_if_jitter(paced.key, pause_s, not is_degraded, self._now_us())
        if pause_s is not None and not is_jitter:
            yield from self._pauses.begin(paced.key, pause_s)
        if paced.attempts > self._retries or not can_be_sent_again(paced.request):
            return None
        longest_us = min(FIRST_BACKOFF_US * 2 ** min(paced.attempts - 1, MOST_DOUBLINGS), LONGEST_BACKOFF_US)
        wait_us = float(math.ceil(random() * longest_us if pause_s is None else pause_s * SECOND_US))
        if self._now_us() + wait_us > paced.deadline_us:
            return None
        return wait_us if pause_s is None or is_jitter else 0.0


THROTTLED = (429, 503)
"""The statuses with which a service asks its clients to come back later (RFC 6585, RFC 9110)."""

LONGEST_PAUSE = 86_400.0
"""The longest pause, in seconds, that an answer can ask for; a longer one is ignored."""


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
