"""The clock of this machine."""

from __future__ import annotations

import time

from asgi_ratelimit.clock import SystemClock


def test_it_returns_whole_microseconds_of_unix_time() -> None:
    """Its time is between two readings of the machine's own clock."""
    before = time.time_ns() // 1000
    now = SystemClock().now_us()
    after = time.time_ns() // 1000
    assert isinstance(now, int)
    assert before <= now <= after
