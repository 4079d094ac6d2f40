"""A load: requests of the benchmarks' clients, at times that are set."""

from __future__ import annotations

import random
from typing import NamedTuple

from benchmarks.processes.direct_client import address_of


class Arrival(NamedTuple):
    """A request: seconds after the start, the client's address, and the path."""

    time: float
    client: str
    path: str


def benchmark_arrivals(seconds: float, known: int, new: int, rate: float, seed: int = 7) -> list[Arrival]:
    """``known`` clients that come again and again, the first ones most often, and ``new`` ones that come once.

    ``rate`` is that of all known ones in a second. In the middle, the first one floods.
    """
    generator = random.Random(seed)
    weights = [1 / (number + 1) ** 0.5 for number in range(known)]
    once = [Arrival(generator.uniform(0, seconds), address_of(known + each)[0], "/items/1") for each in range(new)]
    flood = [Arrival(seconds / 2 + each * 0.004, address_of(0)[0], "/search") for each in range(int(rate / 5))]
    arrivals = [*once, *flood]
    time = 0.0
    while (time := time + generator.expovariate(rate)) < seconds:
        client = address_of(generator.choices(range(known), weights)[0])[0]
        arrivals.append(Arrival(time, client, generator.choice(["/search", "/items/1", "/items/2"])))
    return sorted(arrivals)
