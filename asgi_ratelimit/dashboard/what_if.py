"""How many requests another quota would have refused: the recorded requests of some clients pass through it again.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..algorithms import State, decide, most_at_once, unused
from ..counts.minutes import ALL, Recording
from ..decision import Charge
from ..quotas import SECOND_US, Quota

MOST_CELLS = 20_000
"""The most seconds with requests that are replayed, over all clients."""

_STEPS = 4
"""The requests of one second are assumed to come in this many steps."""

Seconds = dict[int, int]
"""How many requests came in each second since the epoch."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """The effect that a quota would have had on the recorded ``clients`` and their ``requests``, each at a cost of 1.

    ``share`` is the part of all clients that was recorded: 1.0 for all of them.
    """

    clients: int
    requests: int
    refused_clients: int
    refused: int
    share: float


def estimate(recordings: Iterable[tuple[int, Recording]], quotas: Sequence[Quota]) -> Estimate:
    """What these quotas would have refused of the recordings, each of which comes with its minute since the epoch."""
    clients, below = _joined(list(recordings))
    refused = [_refused(seconds, quotas) for seconds in clients.values()]
    requests = sum(sum(seconds.values()) for seconds in clients.values())
    return Estimate(len(clients), requests, sum(each > 0 for each in refused), sum(refused), below / ALL)


def _joined(recordings: Sequence[tuple[int, Recording]]) -> tuple[dict[int, Seconds], int]:
    """The requests of each client that all recordings are sure to contain, and the bound of their checksums."""
    below = min([recording.below for _, recording in recordings], default=ALL)
    while True:
        clients: dict[int, Seconds] = {}
        for minute, recording in recordings:
            for client, cells in recording.clients.items():
                if client < below:
                    seconds = clients.setdefault(client, {})
                    for second, count in cells.items():
                        at = minute * 60 + second
                        seconds[at] = seconds.get(at, 0) + count
        if below == 1 or sum(map(len, clients.values())) <= MOST_CELLS:
            return clients, below
        below >>= 1


def _refused(seconds: Seconds, quotas: Sequence[Quota]) -> int:
    """How many of these requests of one client the quotas would have refused."""
    states, refused = list[State](), 0
    for second, count in sorted(seconds.items()):
        steps = min(count, _STEPS)
        for step in range(steps):
            sent = count // steps + (step < count % steps)
            now, charges = (second + step / steps) * SECOND_US, [Charge(quota, "key", sent) for quota in quotas]
            states = states or [unused(quota, now) for quota in quotas]
            granted = most_at_once(charges, states, now)
            _, after = decide([Charge(quota, "key", granted) for quota in quotas], states, now, 0.0)
            states = after or states
            refused += sent - int(granted) if after else sent
    return refused
