"""How long each part may take: all of it under ten minutes, or under two."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Plan:
    """Rounds of ``round_seconds`` in process and of ``served_seconds`` behind uvicorn; ``flood_seconds`` in all."""

    rounds: int
    round_seconds: float
    served_rounds: int
    served_seconds: float
    flood_seconds: float
    clients: int
    """Addresses that the requests come from in turn, in process."""


def plan(*, quick: bool, clients: int) -> Plan:
    if quick:
        return Plan(7, 0.03, 3, 0.3, 5.0, clients)
    return Plan(25, 0.07, 9, 0.7, 10.0, clients)
