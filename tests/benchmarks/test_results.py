"""The arithmetic that compares subjects, on given rounds."""

from __future__ import annotations

from benchmarks.reporting.results import best, over, paired


def test_rounds_are_compared_with_their_neighbours() -> None:
    """A machine that slows down from round to round does not change the ratio."""
    own = [{"cpu": 20.0}, {"cpu": 40.0}, {"cpu": 60.0}]
    base = [{"cpu": 10.0}, {"cpu": 20.0}, {"cpu": 30.0}]
    assert paired(own, base, "cpu", over) == 2


def test_the_best_quarter_of_the_rounds_counts_for_cpu() -> None:
    """Other work on the machine can only add CPU time, and one lucky round does not decide."""
    assert best([9.0, 5.0, 1.0, 6.0, 3.0, 9.0, 2.0, 9.0, 9.0]) == 2
    assert best([4.0, 3.0]) == 3
