"""The order of requests."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asgi_ratelimit.tools import log_reading as reading
from asgi_ratelimit.tools.log_lines import LoggedRequest
from asgi_ratelimit.tools.log_reading import LogReader

S = 1_000_000.0


def in_order(*logs: list[LoggedRequest]) -> tuple[list[LoggedRequest], LogReader]:
    """The requests of logs in their order, and the reader that counts."""
    reader = LogReader([])
    return list(reader.in_order(logs)), reader


def at(time_us: float) -> tuple[float, str, str, str]:
    """A request at a time."""
    return (time_us, "key", "GET", "/")


def times(*logs: list[float]) -> list[float]:
    """The times of logs, in their order."""
    return [each[0] for each in in_order(*[list(map(at, log)) for log in logs])[0]]


def test_requests_are_sorted() -> None:
    """Those of several logs together, as of two servers, or of a log that was rotated."""
    assert times([3.5, 1.5, 2.5]) == [1.5, 2.5, 3.5]
    assert times([1.5, 4.5], [2.5, 3.5]) == [1.5, 2.5, 3.5, 4.5]
    assert times([5.5, 6.5], [1.5, 2.5]) == [1.5, 2.5, 5.5, 6.5]
    assert times([]) == []


def test_whole_seconds_are_spread() -> None:
    """In the order of their lines; a fraction anywhere means that the log has fractions."""
    requests, reader = in_order([(S, key, "GET", "/") for key in "abcd"], [at(2 * S)])
    assert [each[0] for each in requests] == [S, 1.25 * S, 1.5 * S, 1.75 * S, 2 * S]
    assert reader.in_whole_seconds
    assert times([S, S, 1.5 * S]) == [S, S, 1.5 * S]


def test_requests_of_a_key_that_follow_one_another_came_at_about_one_time() -> None:
    """In a second with few others; in a busy one, the others tell when they came."""
    quiet = [(S, key, "GET", "/") for key in "aaab"]
    assert [each[0] / S for each in in_order(quiet)[0]] == pytest.approx([1, 1 + 1 / 12, 1 + 2 / 12, 1.5], abs=1e-6)
    busy = [(S, "a", "GET", "/")] * 40
    assert [each[0] for each in in_order(busy)[0]] == [S + number * 25_000 for number in range(40)]


@given(st.lists(st.integers(0, 60), max_size=80), st.integers(2, 10))
def test_order_and_number_hold_whatever_the_window(seconds: list[int], window: int) -> None:
    """No request is lost, and none comes before an earlier one; those that are too late are counted."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "WINDOW", window)
        requests, reader = in_order([at(second * S) for second in seconds])
    read = [each[0] for each in requests]
    assert len(read) == len(seconds)
    assert all(before <= after for before, after in pairwise(read))
    assert reader.late <= len(seconds)
    if seconds == sorted(seconds):
        assert reader.late == 0
        assert [time // S for time in read] == seconds


def test_what_is_far_out_of_order_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets the time of what came before."""
    monkeypatch.setattr(reading, "WINDOW", 4)
    seconds = (10, 20, 30, 40, 50, 60, 70, 80, 90, 1)
    requests, reader = in_order([at(second * S + 0.5) for second in seconds])
    assert [each[0] for each in requests] == [n * S + 0.5 for n in (10, 20, 30, 40, 40, 50, 60, 70, 80, 90)]
    assert reader.late == 1
