"""What the examples share: where Redis is, the limit of each guild, and the call that it is for."""

from __future__ import annotations

import os
import sys
import time

REDIS = os.environ.get("REDIS_URL", "redis://localhost:6379/0")
QUOTA = os.environ.get("QUOTA", "10 per 10 seconds fixed")
"""Ten calls in each ten seconds, for each guild."""

LEAD = 3.0
"""Seconds that a worker sleeps for a job, more than its queue may be late; one that is further off goes back."""


def call(guild: str, text: str, ready_at: float) -> None:
    """What there is a limit for; here it only says so."""
    print(f"called {guild} {text} slot={ready_at:.6f} now={time.time():.6f}", file=sys.stderr, flush=True)
