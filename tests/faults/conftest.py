"""Tests of faults look at all keys, connections and commands, so that nothing is published or read beside them."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _undisturbed(unpublished: None, unwatched: None) -> None:
    """What limiters count stays in this process, and nobody reads overrides or compares clocks."""
