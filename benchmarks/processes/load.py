"""A load generator over persistent connections: ``python -m benchmarks.processes.load PORT CONNECTIONS SECONDS``.

It sends GET / and prints a line of JSON: the answers by status, and the seconds. It reads only what these benchmarks
need: answers with a Content-Length, without pipelining. Its event loop is uvloop's, because it has to be quicker than
any server, as wrk is. One that is slower than the bare app never sleeps beside it, so only others have to wake it.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import cast

HOST = "127.0.0.1"
REQUEST = b"GET / HTTP/1.1\r\nHost: testserver\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n"
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


class Connection(asyncio.Protocol):
    """One connection; it sends the next request when the answer to the last one is complete."""

    def __init__(self, on_answer: Callable[[bytes, bytes], object], on_lost: Callable[[], object]) -> None:
        self._on_answer = on_answer
        self._on_lost = on_lost
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(REQUEST)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, end, body = self._received.partition(b"\r\n\r\n")
        length = LENGTH.search(head)
        if end and len(body) >= (int(length[1]) if length else 0):
            self._received = b""
            self._on_answer(head, body)
            self._transport.write(REQUEST)

    def connection_lost(self, error: Exception | None) -> None:
        if not self._transport.is_closing() or error:
            self._on_lost()

    def close(self) -> None:
        self._transport.abort()


async def load(port: int, connections: int, seconds: float) -> dict[str, object]:
    statuses: Counter[str] = Counter()
    loop = asyncio.get_running_loop()

    def answered(head: bytes, body: bytes) -> None:
        statuses[head[9:12].decode()] += 1

    def lost() -> None:
        statuses["connection lost"] += 1

    start = time.perf_counter()
    opened = [await loop.create_connection(lambda: Connection(answered, lost), HOST, port) for _ in range(connections)]
    await asyncio.sleep(seconds)
    answer = {"statuses": dict(statuses), "seconds": time.perf_counter() - start}
    for _, connection in opened:
        connection.close()
    return answer


if __name__ == "__main__":
    import uvloop

    port, connections, seconds = sys.argv[1:]
    print(json.dumps(uvloop.run(load(int(port), int(connections), float(seconds)))))
