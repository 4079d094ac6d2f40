"""The benchmark of clients that do not know the limits of their servers."""

from __future__ import annotations

import pytest

from benchmarks import adaptive


def test_a_row() -> None:
    """A library, a server and a process: what was served, refused, lost and stuck, and the CPU time."""
    name, permitted, refused, part, lost, stuck, cpu = adaptive.measure("no limiter", "hidden", 1, 1.0)
    assert name == "no limiter, 1"
    assert float(permitted) > 0.0
    assert (refused == lost, float(part) < 100.0, stuck) == (True, True, "0")
    assert int(cpu) > 0


def test_a_process_that_fails_is_stuck() -> None:
    """Its calls have no result."""
    assert adaptive.measure("nothing of the kind", "hidden", 1, 1.0)[5] == "1"


def test_a_peer_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loudly, with its version."""
    monkeypatch.setattr(adaptive, "PEERS", {"no-such-library": "1.2", "pytest": "0.1"})
    first, second = adaptive.missing()
    assert first == "no-such-library 1.2 IS NOT MEASURED: nothing is installed"
    assert second.startswith("pytest 0.1 IS NOT MEASURED: ")
