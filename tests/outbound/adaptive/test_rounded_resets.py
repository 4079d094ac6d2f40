"""Servers that say in whole seconds, or as a date, when all units are back."""

from __future__ import annotations

import math
from collections import Counter
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from asgi_ratelimit.testing import SteppedClock
from tests.stand_ins.discord_server import Sliding
from tests.support.simulated_fleet import Fleet

LIMIT, PERIOD, SECONDS = 600, 60.0, 60


class Messages:
    """An API with 600 requests a minute, which come back one by one, as Anthropic's do."""

    def __init__(self, clock: SteppedClock) -> None:
        self._clock, self._requests = clock, Sliding(LIMIT, PERIOD)
        self.refused = 0

    def answer(self, _path: str) -> tuple[int, dict[str, str], Any]:
        """Serve a request, or refuse it."""
        is_served = not self._requests.wait(self._clock.now)
        self.refused += not is_served
        now = datetime.fromtimestamp(self._clock.now, UTC)
        full_at = now + timedelta(seconds=math.ceil(self._requests.end - self._clock.now))
        headers = {
            "date": format_datetime(now.replace(microsecond=0), usegmt=True),
            "anthropic-ratelimit-requests-limit": str(LIMIT),
            "anthropic-ratelimit-requests-remaining": str(self._requests.left),
            "anthropic-ratelimit-requests-reset": f"{full_at:%Y-%m-%dT%H:%M:%SZ}",
        }
        return (200, headers, {}) if is_served else (429, {**headers, "retry-after": "1"}, {})


@pytest.mark.parametrize("processes", [pytest.param(1, marks=pytest.mark.long), 4])
def test_a_limit_is_used_whose_reset_is_rounded(processes: int) -> None:
    """The first answers, whose reset is mostly rounding, do not decide how fast units come back."""
    fleet = Fleet(processes, latency=(0.1, 0.6))
    api, permitted = Messages(fleet.clock), LIMIT * (1 + SECONDS / PERIOD)
    fleet.run(api.answer, 1, 64 // processes, SECONDS, profile="anthropic")
    assert fleet.statuses[200] >= 0.95 * permitted
    assert api.refused <= 0.03 * permitted


@pytest.mark.parametrize("processes", [2, 3])
def test_windows_are_used_whose_end_is_rounded_down(processes: int) -> None:
    """Requests that go before the real end are refused; they take nothing of the next window."""
    fleet, served = Fleet(processes, latency=(0.02, 0.06)), Counter[int]()

    def answer(_path: str) -> Any:
        window, used_s = divmod(fleet.clock.now, PERIOD)
        served[int(window)] += (is_served := served[int(window)] < 60)
        headers = {"x-ratelimit-limit": "60", "x-ratelimit-remaining": str(60 - served[int(window)])}
        headers["x-ratelimit-reset"] = str(int(PERIOD - used_s))
        return (200, headers, {}) if is_served else (429, {**headers, "retry-after": str(int(PERIOD - used_s) + 1)}, {})

    fleet.run(answer, 1, 24 // processes, 4 * PERIOD, profile="auto")
    assert min(sorted(served.values())[1:]) >= 0.9 * 60  # of all but the last one, which is cut off
