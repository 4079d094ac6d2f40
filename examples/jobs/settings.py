"""What the examples share: the URL of Redis, the quota of each guild, and the limited call."""

from __future__ import annotations

import os
import sys
import time

REDIS = os.environ.get("REDIS_URL", "redis://localhost:6379/0")
QUOTA = os.environ.get("QUOTA", "10 per 10 seconds fixed")
"""Ten calls in each window of ten seconds, for each guild."""

LEAD = 3.0
"""The most seconds that a worker sleeps for a slot; longer than a queue may be late.

A job whose slot is further ahead is scheduled again.
"""


def call(guild: str, text: str, ready_at: float) -> None:
    """The call that is limited; here it only prints its arguments."""
    print(f"called {guild} {text} slot={ready_at:.6f} now={time.time():.6f}", file=sys.stderr, flush=True)
