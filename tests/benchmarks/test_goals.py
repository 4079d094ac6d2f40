"""Which goals are reached, and where a peer is ahead, on given results."""

from __future__ import annotations

import pytest

from benchmarks.apps.shapes import SHAPES
from benchmarks.parts import shapes
from benchmarks.reporting.goals import GOALS, ahead, is_ahead
from benchmarks.reporting.results import Column

from .tables import in_process, row


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
