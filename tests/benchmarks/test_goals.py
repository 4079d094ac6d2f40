"""Which goals are reached, and where a peer is ahead, on given results."""

from __future__ import annotations

import math

import pytest

from benchmarks.apps.shapes import SHAPES
from benchmarks.parts import shapes
from benchmarks.reporting.goals import GOALS, Goal, ahead, is_ahead
from benchmarks.reporting.results import Column, Part

from .tables import in_process, row


def test_the_worst_of_several_parts_counts() -> None:
    """For an upper bound it is the highest figure, for a lower bound the lowest; missing parts do not count."""
    done = {
        name: Part(name, name, {}, [row("ours", "redis", pause=pause)]) for name, pause in (("few", 1.0), ("many", 4.0))
    }
    at_most = Goal("pause", ("few", "many", "most"), "ours redis", "pause", "<=", 5)
    at_least = Goal("pause", ("few", "many", "most"), "ours redis", "pause", ">=", 5)
    assert at_most.measured(done) == 4
    assert at_least.measured(done) == 1
    assert math.isnan(at_most.measured({}))


def test_goals_of_shapes_are_for_rows_of_them() -> None:
    """Each names a shape, one of its peers, and a column."""
    goals = [goal for goal in GOALS if goal.part == "shapes"]
    assert len(goals) > 10
    for goal in goals:
        shape, _, subject = goal.subject.partition(": ")
        assert subject.partition(" ")[0] in SHAPES[shape]
        assert goal.figure in shapes.COLUMNS


def test_a_peer_that_is_ahead_is_named() -> None:
    """It is compared with ours over the same store and on the same bare app, if both have the figure."""
    done = in_process(
        row("bare", "none", cpu_64=9.0),
        row("ours", "memory", cpu_64=5.0),
        row("ours_fastapi", "memory", cpu_64=8.0),
        row("ours", "redis", cpu_64=12.0),
        row("plain", "redis", cpu_64=1.0),
        row("limits", "memory", cpu_64=4.0),
        row("limits", "redis", cpu_64=60.0),
        row("throttled", "memory", cpu_64=6.0),
        row("slowapi", "memory", error="broken"),
    )
    assert [str(each) for each in ahead(done)] == [
        "CPU, CPU µs more, 64 at once: limits, memory 4.0, ours 5.0",
        "CPU, CPU µs more, 64 at once: throttled-py, memory 6.0, ours 8.0",
    ]


@pytest.mark.parametrize(
    ("better", "figure", "expected"),
    [("less", 96.0, True), ("less", 98.0, False), ("more", 104.0, True), ("more", 102.0, False), (None, 1.0, False)],
)
def test_a_small_difference_is_no_lead(better: str | None, figure: float, expected: bool) -> None:
    """Figures that differ by less than three in a hundred count as equal."""
    assert is_ahead(figure, 100.0, Column("", 0, better)) is expected
