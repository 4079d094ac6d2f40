"""What runs of the tests rely on."""

from __future__ import annotations

import pytest


def test_names_have_no_addresses(request: pytest.FixtureRequest) -> None:
    """Processes that share a run must agree on them, and so must a run and one that repeats what failed."""
    assert [item.nodeid for item in request.session.items if " at 0x" in item.nodeid] == []  # ids=named helps
