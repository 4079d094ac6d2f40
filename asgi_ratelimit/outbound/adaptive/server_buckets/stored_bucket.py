"""What a bucket's answers, and the store that processes share, tell each other through this process.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .bucket_refills import Rate


@dataclass(slots=True, eq=False, repr=False)
class StoredBucket:
    """A bucket in the store that processes share. ``rate`` and ``left`` come from there; the rest is to be told there.

    Without such a store, nobody reads it.
    """

    rate: Rate | None = None
    """The rate by which all processes charge the bucket."""
    left: float = math.inf
    """The units that the store had left when it last decided on a request; they bound how many ask it at once."""
    reported: float = math.inf
    """The units that were left according to the latest answer."""
    is_spent: bool = False
    """Whether nothing was left according to the latest answer, unless the store knows that already."""
    has_renewed: bool = False
    """Whether a window that an answer has reported has ended, unless the store knows that already."""
