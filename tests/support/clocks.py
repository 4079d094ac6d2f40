"""Clocks that are wrong."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from asgi_ratelimit.clock import SystemClock


@contextmanager
def wrong_clock(hours: float) -> Iterator[None]:
    """What is built meanwhile has a system clock that is ahead of all others by so many hours."""

    def now_us(clock: SystemClock) -> int:
        return time.time_ns() // 1000 + int(hours * 3_600_000_000)

    with mock.patch.object(SystemClock, "now_us", now_us):
        yield
