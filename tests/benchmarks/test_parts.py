"""What the parts and the runner compute without a process."""

from __future__ import annotations

import pytest

from benchmarks.parts.admission import most_in_a_second
from benchmarks.processes.runner import chosen
from benchmarks.subject import PEERS


@pytest.mark.parametrize(
    ("times", "most"), [([], 0), ([0.0, 0.5, 1.0], 2), ([0.0, 0.5, 0.99, 5.0], 3), ([0.0, 0.9, 1.1, 1.8], 3)]
)
def test_the_most_in_a_second_are_counted_in_any_second(times: list[float], most: int) -> None:
    """An interval begins at any answer, and its end is not part of it."""
    assert most_in_a_second(times) == most


def test_the_bare_app_of_a_peer_is_measured_with_it() -> None:
    """The bare app of each chosen peer comes along, in the order of the tables."""
    assert chosen(["throttled", "ours"]) == ["bare", "bare_fastapi", "ours", "throttled"]
    assert chosen([]) == list(PEERS)
