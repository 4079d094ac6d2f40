"""A load for servers: requests of the benchmarks' clients at times that are set, over connections that are warm."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from benchmarks.processes.direct_client import address_of
from tests.support.server import HOST

WARM = "/warm"
"""The path of the requests that warm connections up."""

CONNECTIONS = 32
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


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


async def send(port: int, arrivals: Sequence[Arrival]) -> list[int]:
    """Send each request at its time, over ``CONNECTIONS`` warm connections; the statuses, in the order of arrivals."""
    statuses = [0] * len(arrivals)
    left = iter(enumerate(arrivals))
    warm = asyncio.Barrier(CONNECTIONS)
    start: list[float] = []
    await asyncio.gather(*[_connection(port, left, warm, start, statuses) for _ in range(CONNECTIONS)])
    return statuses


async def _connection(
    port: int, left: Iterator[tuple[int, Arrival]], warm: asyncio.Barrier, start: list[float], statuses: list[int]
) -> None:
    """Send what is left, one request after another."""
    loop = asyncio.get_running_loop()
    reader, writer = await asyncio.open_connection(HOST, port)
    for _ in range(3):
        await _exchange(reader, writer, Arrival(0.0, HOST, WARM))
    await warm.wait()
    start.append(loop.time() + 0.05)
    for number, arrival in left:
        await asyncio.sleep(start[0] + arrival.time - loop.time())
        statuses[number] = await _exchange(reader, writer, arrival)
    writer.close()
    await writer.wait_closed()


async def _exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, arrival: Arrival) -> int:
    writer.write(f"GET {arrival.path} HTTP/1.1\r\nHost: bench\r\nX-Forwarded-For: {arrival.client}\r\n\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    length = LENGTH.search(head)
    await reader.readexactly(int(length[1]) if length else 0)
    return int(head[9:12])
