"""What quotas do with requests of one client at given times, request by request."""

from __future__ import annotations

from collections.abc import Sequence

from asgi_ratelimit import Charge, Quota
from asgi_ratelimit.algorithms.take import decide, unused


def admitted_at(quotas: Sequence[Quota], times: Sequence[float]) -> list[float | None]:
    """The times in seconds at which requests of these times are admitted; ``None`` for each that is refused."""
    charges = [Charge(quota, "key") for quota in quotas]
    states = [unused(quota, times[0] * 1e6) for quota in quotas]
    admitted: list[float | None] = []
    for time in times:
        _, after = decide(charges, states, float(round(time * 1e6)), 0.0)
        states = after or states
        admitted.append(time if after else None)
    return admitted
