"""What a take charges, as far as the algorithms are concerned."""

from __future__ import annotations

from typing import NamedTuple

from asgi_ratelimit.quotas import Quota


class Charged(NamedTuple):
    """So many units of a quota."""

    quota: Quota
    cost: float
