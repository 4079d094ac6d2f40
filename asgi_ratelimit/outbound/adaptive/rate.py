"""What all processes charge a bucket by.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

from typing import NamedTuple


class Rate(NamedTuple):
    """How much there is of a bucket, in numbers that all processes agree on: ``limit`` units in ``period`` seconds.

    With ``refills``, units come back one by one; otherwise all at the end of a window. Until answers have shown which
    of them it is, the rate is not ``is_sure``.
    """

    limit: float
    period: float
    refills: bool
    is_sure: bool = True
