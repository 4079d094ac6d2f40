"""The arithmetic that compares subjects, on given rounds."""

from __future__ import annotations

import json
import math

from benchmarks.reporting.results import as_json, best, mid, over, paired, spread, unexpected

from .tables import in_process, row


def test_rounds_are_compared_with_their_neighbours() -> None:
    """A machine that slows down from round to round does not change the ratio."""
    own = [{"cpu": 20.0}, {"cpu": 40.0}, {"cpu": 60.0}]
    base = [{"cpu": 10.0}, {"cpu": 20.0}, {"cpu": 30.0}]
    assert paired(own, base, "cpu", over) == 2


def test_the_best_quarter_of_the_rounds_counts_for_cpu() -> None:
    """Other work on the machine can only add CPU time, and one lucky round does not decide."""
    assert best([9.0, 5.0, 1.0, 6.0, 3.0, 9.0, 2.0, 9.0, 9.0]) == 2
    assert best([4.0, 3.0]) == 3


def test_no_rounds_give_no_figure() -> None:
    """Where a subject failed, the figure is NaN, and nothing is raised."""
    assert math.isnan(paired([], [{"cpu": 1.0}], "cpu", over))
    assert math.isnan(paired([{"wall": 1.0}], [{"wall": 1.0}], "cpu", over))
    assert math.isnan(mid([]))
    assert math.isnan(best([]))
    assert math.isnan(spread([1.0]))
    assert mid([math.nan, 3.0, 1.0, 2.0]) == 2


def test_the_most_frequent_wrong_answer_is_named_with_its_share() -> None:
    """An error or an unexpected status is named, with how often it came."""
    assert unexpected({"200": 5}, ("200",)) == ""
    assert unexpected({"200": 1, "503": 3, "500": 1}, ("200",)) == "status 503 (3 of 5)"
    assert unexpected({"TooMany: connections": 2}, ("200",)) == "TooMany: connections (2 of 2)"


def test_results_are_valid_json() -> None:
    """Missing figures are left out, because JSON has no NaN."""
    part = in_process(row("limits", "redis", error="broken", cpu_1=math.nan, cpu_64=56.412345))["cpu"]
    assert json.loads(json.dumps(as_json(part), allow_nan=False))["rows"] == [
        {"subject": "limits redis", "cpu_64": 56.412, "error": "broken"}
    ]
