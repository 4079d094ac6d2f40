"""What quotas would have refused of requests that have come, of which only the second is known.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..quotas import SECOND_US, Quota
from .take import State, decide, most_at_once, unused

STEPS = 4
"""The requests of one second are assumed to come in this many steps."""


class Units(NamedTuple):
    """A charge."""

    quota: Quota
    cost: float


def refused_at(seconds: Mapping[int, int], quotas: Sequence[Quota]) -> int:
    """How many of the requests of one client, so many at each second since the epoch, the quotas would have refused."""
    states, refused = list[State](), 0
    for second, count in sorted(seconds.items()):
        steps = min(count, STEPS)
        for step in range(steps):
            sent = count // steps + (step < count % steps)
            now = (second + step / steps) * SECOND_US
            states = states or [unused(quota, now) for quota in quotas]
            granted = most_at_once([Units(quota, sent) for quota in quotas], states, now)
            _, after = decide([Units(quota, granted) for quota in quotas], states, now, 0.0)
            states = after or states
            refused += sent - int(granted) if after else sent
    return refused
