"""How many random examples a test draws."""

from __future__ import annotations

import os

from hypothesis import settings


def up_to(examples: int) -> settings:
    """So many with ``scripts/test --long``, and otherwise a quarter of them."""
    return settings(max_examples=examples if os.environ.get("RANDOM_EXAMPLES") == "all" else examples // 4)
