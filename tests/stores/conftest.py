"""Tests of stores look at all keys, connections and commands, so that nothing is published beside them."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _unpublished(unpublished: None) -> None:
    """What limiters count stays in this process."""
