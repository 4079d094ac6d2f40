"""Recordings: how many requests some clients sent in each second of a minute, so that another limit can be tried on it.

Clients are recorded whole or not at all: those whose checksum is below a bound, which is the same in every process. A
rule with too many of them lowers the bound, and forgets the others. No key is recorded, only its checksum.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from zlib import crc32

ALL = 2**32
"""A bound above all checksums."""

MOST_CELLS = 4096
"""The most seconds with requests that are recorded in a minute, of all clients of all rules."""

FEWEST_CELLS = 64
"""The number of these that are recorded for each rule in any case."""


@dataclass(slots=True)
class Recording:
    """The requests of one rule in one minute: by the checksum of the client's bucket, and by the second."""

    below: int = ALL
    clients: dict[int, dict[int, int]] = field(default_factory=dict)
    cells: int = field(default=0, compare=False)
    """How many seconds with requests are recorded, over all clients."""

    def add(self, second: int, requests: Mapping[str, int], most: int) -> None:
        """Record requests by bucket, all in one second; then forget clients until at most ``most`` cells are left."""
        below, clients = self.below, self.clients
        for bucket, count in requests.items():
            checksum = crc32(bucket.encode())
            if checksum < below:
                seconds = clients.get(checksum)
                if seconds is None:
                    clients[checksum] = {second: count}
                    self.cells += 1
                elif second in seconds:
                    seconds[second] += count
                else:
                    seconds[second] = count
                    self.cells += 1
        while self.below > 1 and self.cells > most:
            self.thin(self.below >> 1)

    def thin(self, below: int) -> None:
        """Forget the clients whose checksums are not below ``below``."""
        self.below = min(self.below, below)
        self.clients = {client: seconds for client, seconds in self.clients.items() if client < self.below}
        self.cells = sum(map(len, self.clients.values()))

    def next(self, most: int) -> Recording:
        """An empty recording for the next minute, with room for twice the clients if this one has used little."""
        return Recording(min(ALL, self.below * 2) if self.cells < most // 4 else self.below)


def most_cells(rules: int) -> int:
    """The most cells for each rule, if there are this many rules."""
    return max(FEWEST_CELLS, MOST_CELLS // max(rules, 1))


def encoded(recordings: Mapping[str, Recording]) -> bytes:
    """The recordings of all rules, by name, as bytes."""
    rules = {name: [each.below, _pairs(each.clients)] for name, each in recordings.items() if each.clients}
    return zlib.compress(json.dumps(rules, separators=(",", ":")).encode(), 1)


def recording_in(content: bytes, name: str) -> Recording | None:
    """The recording of one rule in such bytes, if there is one."""
    rule = json.loads(zlib.decompress(content)).get(name)
    if rule is None:
        return None
    below, clients = rule
    read = {int(client): dict(zip(*[iter(pairs)] * 2)) for client, pairs in clients.items()}
    return Recording(below, read, sum(map(len, read.values())))


def _pairs(clients: Mapping[int, Mapping[int, int]]) -> dict[int, list[int]]:
    """The seconds and counts of each client as a list, in turn."""
    return {client: _flat(seconds.items()) for client, seconds in clients.items()}


def _flat(pairs: Iterable[tuple[int, int]]) -> list[int]:
    return [number for pair in pairs for number in pair]
