"""Names of the cases of a test."""

from __future__ import annotations

import re


def named(value: object) -> str:
    """What ``repr`` says, without addresses in memory: they would differ between processes that share a run."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))
