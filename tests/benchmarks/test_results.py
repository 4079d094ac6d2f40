"""The arithmetic that compares subjects, on given rounds."""

from __future__ import annotations

from benchmarks.reporting.results import over, paired


def test_rounds_are_compared_with_their_neighbours() -> None:
    """A machine that slows down from round to round does not change the ratio."""
    own = [{"cpu": 20.0}, {"cpu": 40.0}, {"cpu": 60.0}]
    base = [{"cpu": 10.0}, {"cpu": 20.0}, {"cpu": 30.0}]
    assert paired(own, base, "cpu", over) == 2
