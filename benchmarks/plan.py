"""How much each part measures: a whole run takes under half an hour, a quick one some minutes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured, in rounds and seconds.

    In process there are ``rounds`` of ``round_seconds`` for each subject, behind uvicorn ``served_rounds`` of
    ``served_seconds``. A refused client sends requests for ``attack_seconds``, ten times the quota is sent for
    ``flood_seconds``. Requests in process come from ``clients`` addresses, one after another. ``passes`` are the passes
    over each number of clients in the part ``clients``. Each shape of use has ``shape_rounds`` from
    ``known_clients``, and then ``new_clients``.
    """

    rounds: int
    round_seconds: float
    served_rounds: int
    served_seconds: float
    attack_seconds: float
    flood_seconds: float
    clients: int
    passes: Mapping[int, int]
    shape_rounds: int
    known_clients: int
    new_clients: int


MANY = 20
"""Subjects in a run of all peers, roughly."""


def plan(*, quick: bool, clients: int, subjects: int) -> Plan:
    """The plan for so many subjects; fewer subjects get more rounds."""
    times = max(1, min(MANY // subjects, 4))
    if quick:
        passes = {100: 10, 10_000: 2, 100_000: 1}
        return Plan(10 * times, 0.014, 3 * times, 0.3, 1.1, 2.5, clients, passes, 6, 128, 1000)
    passes = {100: 20, 10_000: 4, 100_000: 2, 1_000_000: 1}
    return Plan(40 * times, 0.025, 24 * times, 0.3, 3.0, 10.0, clients, passes, 24, 1000, 100_000)
