"""Which goals are reached, and where a peer is ahead, on given results."""

from __future__ import annotations

import pytest

from benchmarks.apps.shapes import SHAPES
from benchmarks.parts import shapes
from benchmarks.reporting.goals import GOALS, is_ahead
from benchmarks.reporting.results import Column


def test_goals_of_shapes_are_for_rows_of_them() -> None:
    """Each names a shape, one of its peers, and a column."""
    goals = [goal for goal in GOALS if goal.part == "shapes"]
    assert len(goals) > 10
    for goal in goals:
        shape, _, subject = goal.subject.partition(": ")
        assert subject.partition(" ")[0] in SHAPES[shape]
        assert goal.figure in shapes.COLUMNS


@pytest.mark.parametrize(
    ("better", "figure", "expected"),
    [("less", 96.0, True), ("less", 98.0, False), ("more", 104.0, True), ("more", 102.0, False), (None, 1.0, False)],
)
def test_a_small_difference_is_no_lead(better: str | None, figure: float, expected: bool) -> None:
    """Figures that differ by less than three in a hundred count as equal."""
    assert is_ahead(figure, 100.0, Column("", 0, better)) is expected
