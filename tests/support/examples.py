"""How many random examples a test draws. ``RANDOM_EXAMPLES`` is ``many``, ``few``, or neither."""

from __future__ import annotations

import os

from hypothesis import settings

FACTOR = {"many": 1.0, "few": 1 / 16}.get(os.environ.get("RANDOM_EXAMPLES", ""), 1 / 4)


def up_to(examples: int) -> settings:
    """So many with ``scripts/test --long``, a quarter of them otherwise, and few where only Python or Redis differ."""
    return settings(max_examples=round(examples * FACTOR))
