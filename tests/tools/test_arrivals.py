"""When requests arrive: patterns in words, and log files."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asgi_ratelimit.tools.arrivals import arrivals, arrivals_in_log

PATTERNS = [
    ("4/s", 1.0, [0.0, 0.25, 0.5, 0.75]),
    ("2 / Second", 1.0, [0.0, 0.5]),
    ("30/minute", 5.0, [0.0, 2.0, 4.0]),
    ("3 every 2 s", 4.0, [0.0, 0.0, 0.0, 2.0, 2.0, 2.0]),
    ("2/s for 1 s; 1 every 0.5 seconds for 1 s", 99.0, [0.0, 0.5, 1.0, 1.5]),
    ("1/s for 2 s; 2/s", 1.0, [0.0, 1.0, 2.0, 2.5]),
    ("0.5/s", 1.0, [0.0]),
]


@pytest.mark.parametrize(("pattern", "seconds", "times"), PATTERNS, ids=[pattern for pattern, _, _ in PATTERNS])
def test_patterns(pattern: str, seconds: float, times: list[float]) -> None:
    """Evenly spaced, in bursts, and several phases."""
    assert arrivals(pattern, seconds) == times


def test_random_arrivals() -> None:
    """They are the same for the same seed, at about the given rate, in order and within the time."""
    times = arrivals("100/s poisson", 50, seed=1)
    assert times == arrivals("100/s poisson", 50, seed=1) != arrivals("100/s poisson", 50, seed=2)
    assert times == sorted(times)
    assert 0 <= times[0] <= times[-1] < 50
    assert len(times) == pytest.approx(5000, rel=0.1)


@pytest.mark.parametrize(
    "pattern", ["", "20", "20/fortnight", "fast", "0/s", "-5/s", "5 every 0 s", "5/s; ;", "5/s for ever", "5 every s"]
)
def test_invalid_patterns_are_refused(pattern: str) -> None:
    """The error quotes the pattern, and shows right ones."""
    with pytest.raises(ValueError, match="50 every 10 s") as raised:
        arrivals(pattern, 10)
    assert repr(pattern) in str(raised.value)


@pytest.mark.parametrize("pattern", ["1000000/s", "1000001 every 1 s for 1 s", "9/s for 9999999999 days"])
def test_too_many_arrivals_are_refused(pattern: str) -> None:
    """Before they fill the memory."""
    with pytest.raises(ValueError, match="more than 1,000,000 arrivals"):
        arrivals(pattern, 10)


@given(st.text(alphabet="0123456789/s every;for. poisson"))
def test_any_text_gives_times_or_an_error(pattern: str) -> None:
    """Times are in order; the error is a ValueError."""
    try:
        times = arrivals(pattern, 0.01)
    except ValueError:
        return
    assert times == sorted(times)


LOG = """\
192.0.2.1 - - [10/Oct/2026:13:55:37 +0000] "GET / HTTP/1.1" 200 5
192.0.2.1 - - [10/Oct/2026:15:55:36 +0200] "GET / HTTP/1.1" 200 5
2026-10-10T13:55:38.5Z a line of JSON, or so
2026-10-10 13:55:39,250 one of Python's
1791640540 one of Unix
1791640541.5
nothing of the kind
[99/Oct/2026:13:55:37 +0000] no such day
"""


def test_logs() -> None:
    """Times in several formats are put in order; lines without a time are ignored."""
    first = 1791640536.0
    assert [time - first for time in arrivals_in_log(LOG.splitlines())] == [0.0, 1.0, 2.5, 3.25, 4.0, 5.5]


def test_a_log_without_times_is_refused() -> None:
    """The error shows the known formats."""
    with pytest.raises(ValueError, match="2026-10-10T13:55:36Z"):
        arrivals_in_log(["nothing", "of the kind"])
