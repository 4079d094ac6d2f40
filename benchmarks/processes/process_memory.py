"""The memory of this process."""

from __future__ import annotations

import math
import os
from pathlib import Path

_STATM = Path("/proc/self/statm")


def resident_bytes() -> float:
    """Bytes of it that are in RAM now; NaN where the system has no /proc."""
    if not _STATM.exists():
        return math.nan
    return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
