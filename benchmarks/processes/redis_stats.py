"""What a Redis reports of its own work and memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from redis import Redis

from tests.support.redis_server import RedisServer

SAMPLES = 50
"""INFO commands that measure what an INFO costs."""


@dataclass(frozen=True, slots=True)
class Work:
    """Totals since the server started.

    ``trips`` are reads from a client's socket, ``takes`` calls of EVALSHA, ``cpu`` seconds of the process,
    ``script_time`` seconds within those calls; ``connections`` are those of others at that moment. All subjects take by
    EVALSHA; ours publishes its counts by an EVAL.
    """

    trips: int
    takes: int
    cpu: float
    script_time: float
    connections: int


class RedisStats:
    """The statistics of one server, over a connection of its own."""

    def __init__(self, server: RedisServer) -> None:
        self._redis = Redis.from_url(server.url)
        start = self.work()
        for _ in range(SAMPLES):
            latest = self.work()
        self._cpu_of_info = (latest.cpu - start.cpu) / SAMPLES

    def work(self) -> Work:
        info = self._redis.info("all")
        scripts = info.get("cmdstat_evalsha", {"calls": 0, "usec": 0})
        return Work(
            info["total_reads_processed"],
            scripts["calls"],
            info["used_cpu_user"] + info["used_cpu_sys"],
            scripts["usec"] / 1e6,
            info["connected_clients"] - 1,
        )

    def work_since(self, before: Work) -> Work:
        """The difference, without the INFO itself; the connections are those of now."""
        now = self.work()
        return Work(
            now.trips - before.trips - 1,
            now.takes - before.takes,
            now.cpu - before.cpu - self._cpu_of_info,
            now.script_time - before.script_time,
            now.connections,
        )

    def bytes(self) -> int:
        """MEMORY USAGE of all keys together, without what our processes publish of themselves once a second."""
        keys = [key for key in self._redis.scan_iter(count=1000) if b":documents:" not in key]
        return sum(cast("int", self._redis.memory_usage(key, samples=0)) for key in keys)
