"""The clock of tests of callers that wait."""

from __future__ import annotations

import pytest

from asgi_ratelimit.testing import SteppedClock


@pytest.fixture
def clock() -> SteppedClock:
    """It starts at a whole second, and a whole minute."""
    return SteppedClock(0)
