"""How long each part may take: all of it under fifteen minutes, or about two."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is done, in rounds and seconds.

    In process there are ``rounds`` of ``round_seconds`` for each subject, behind uvicorn ``served_rounds`` of
    ``served_seconds``; ``attack_seconds`` is how long a refused client keeps asking, ``flood_seconds`` how long
    there is ten times the quota. ``clients`` are the addresses that the requests come from in turn, in process.
    """

    rounds: int
    round_seconds: float
    served_rounds: int
    served_seconds: float
    attack_seconds: float
    flood_seconds: float
    clients: int


MANY = 20
"""Subjects, more or less, where all are measured."""


def plan(*, quick: bool, clients: int, subjects: int) -> Plan:
    """The plan for so many subjects: the fewer there are, the more rounds."""
    times = max(1, min(MANY // subjects, 4))
    if quick:
        return Plan(10 * times, 0.014, 3 * times, 0.3, 1.1, 2.5, clients)
    return Plan(40 * times, 0.025, 24 * times, 0.3, 3.0, 10.0, clients)
