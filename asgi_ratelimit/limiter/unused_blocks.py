"""Blocks of limiters that take nothing, as ``async with limiter:`` does in other packages, where it waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ..logs import calling_line, warn_once
from ..quota_text import readable
from ..quotas import Quota

_MOST_LINES = 1000

_lines: Counter[str] = Counter()
"""How many blocks have ended on each line of the program without a call of their limiter."""


def note_unused_block(quotas: Sequence[Quota], call: str) -> None:
    """Note that a block of a limiter ends that nobody has called; warn at the second one on a line.

    A single one may be that of an app that got no request. ``call`` is what the block lacks.
    """
    line = calling_line()
    if "contextlib.py:" in line or (len(_lines) >= _MOST_LINES and line not in _lines):
        return  # a stack closes different limiters on one line
    _lines[line] += 1
    if _lines[line] == 2:
        warn_once(
            "a-block-that-limits-nothing",
            f"the block at {line} limits nothing: it only closes its limiter, {'; '.join(map(readable, quotas))}, and "
            f"nothing is taken from that: {call}",
        )
