"""A real cluster of redis-servers, and real sentinels, on loopback ports."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from typing import Any, Self

from redis import Redis
from redis.crc import key_slot
from redis.exceptions import RedisError

from tests.support.redis_server import RedisServer, find_redis
from tests.support.server import HOST, free_port

SLOTS = 16_384
READY_WITHIN = 120.0
# How far a node's port for the other nodes is from its own.
BUS = 10_000


class ClusterNode(RedisServer):
    """A node of a cluster; alone until it meets others."""

    def __init__(self) -> None:
        super().__init__("--cluster-enabled", "yes", "--cluster-node-timeout", "1000")
        self.port = next(_ports_with_bus())

    @property
    def id(self) -> str:
        """What the cluster calls it."""
        return asked(self, "CLUSTER", "MYID").decode()


class RedisCluster:
    """Three primaries that share the slots evenly, with ``replicas`` more nodes, one for each from the first on."""

    def __init__(self, replicas: int = 0) -> None:
        self.primaries = [ClusterNode() for _ in range(3)]
        self.replicas = [ClusterNode() for _ in range(replicas)]
        self._running = ExitStack()

    @property
    def nodes(self) -> list[ClusterNode]:
        """All of them."""
        return [*self.primaries, *self.replicas]

    @property
    def url(self) -> str:
        """Where all of them listen."""
        return "redis+cluster://" + ",".join(f"{HOST}:{node.port}" for node in self.nodes)

    def __enter__(self) -> Self:
        with ExitStack() as running:
            for node in self.nodes:
                running.enter_context(node)
            self._form()
            self._running = running.pop_all()
        return self

    def __exit__(self, *failure: object) -> None:
        self._running.close()

    def flush(self) -> None:
        """Forget all keys, on every primary."""
        for node in self.primaries:
            node.flush()

    def owner(self, slot: int) -> ClusterNode:
        """The primary that had a slot at the start."""
        return self.primaries[min(slot // (SLOTS // 3), 2)]

    def keys_on(self, at: int, count: int = 1) -> list[str]:
        """Keys in different slots of one primary."""
        slots: dict[int, str] = {}
        for key in (f"key-{number}" for number in range(10_000)):
            if self.owner(slot_of(key)) is self.primaries[at]:
                slots.setdefault(slot_of(key), key)
        return list(slots.values())[:count]

    def move(self, slot: int, target: ClusterNode) -> None:
        """Move a slot for good; no key must be in it."""
        for node in self.primaries:
            asked(node, "CLUSTER", "SETSLOT", slot, "NODE", target.id)

    def begin_to_move(self, slot: int, target: ClusterNode) -> None:
        """Keys of the slot that its owner does not have are asked for at the target from now on."""
        source = self.owner(slot)
        asked(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
        asked(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", target.id)

    def _form(self) -> None:
        first = self.primaries[0]
        for at, node in enumerate(self.primaries):
            slots = range(at * (SLOTS // 3), SLOTS if at == 2 else (at + 1) * (SLOTS // 3))
            asked(node, "CLUSTER", "ADDSLOTS", *slots)

        def all_have_met() -> bool:
            known = asked(first, "CLUSTER", "NODES").decode()  # not those whose handshake was too slow
            for node in self.nodes:
                if f":{node.port}@" not in known:
                    asked(first, "CLUSTER", "MEET", HOST, node.port)
            return all(self._is_whole(node) for node in self.nodes)

        wait_until(all_have_met)
        for replica, primary in zip(self.replicas, self.primaries):
            asked(replica, "CLUSTER", "REPLICATE", primary.id)
        wait_until(
            lambda: all(b"master_link_status:up" in asked(replica, "INFO", "replication") for replica in self.replicas)
        )

    def _is_whole(self, node: ClusterNode) -> bool:
        known = asked(node, "CLUSTER", "NODES").decode()
        state = asked(node, "CLUSTER", "INFO")
        return len(known.splitlines()) == len(self.nodes) and "handshake" not in known and b"cluster_state:ok" in state


class RedisSentinel(RedisServer):
    """A sentinel that watches the primary on a port as ``service``, alone: its own vote is enough."""

    def __init__(self, primary: RedisServer, service: str = "limits") -> None:
        super().__init__()
        self.service = service
        self._primary = primary

    @property
    def url(self) -> str:
        """Where it says who the primary is."""
        return f"redis+sentinel://{HOST}:{self.port}/{self.service}"

    def command(self) -> Sequence[str]:
        """The command line: its configuration is in the folder that it runs in."""
        script = f"""
            printf '%s\\n' 'port {self.port}' 'bind {HOST}' \
                'sentinel monitor {self.service} {HOST} {self._primary.port} 1' \
                'sentinel down-after-milliseconds {self.service} 300' \
                'sentinel failover-timeout {self.service} 2000' >sentinel.conf
            exec {find_redis()} sentinel.conf --sentinel"""
        return ("sh", "-c", script)


def slot_of(key: str) -> int:
    """The slot of the buckets of a key."""
    return int(key_slot(f"{{{key}}}".encode()))


def wait_until(is_so: Callable[[], bool]) -> None:
    """Return when it is so; ``RuntimeError`` if that takes too long."""
    deadline = time.monotonic() + READY_WITHIN
    while not is_so():
        if time.monotonic() > deadline:
            raise RuntimeError(f"it did not come about: {is_so}")
        time.sleep(0.05)


def asked(server: RedisServer, *command: Any) -> Any:
    """A server's answer to one command, as it comes; ``RedisError`` where it is out, or does not like it."""
    with Redis(host=HOST, port=server.port) as client:
        client.response_callbacks.clear()
        return client.execute_command(*command)


def script_calls(server: RedisServer) -> int:
    """How often a server was called with a script."""
    lines = asked(server, "INFO", "commandstats").decode().splitlines()
    return sum(int(line.split("calls=")[1].split(",")[0]) for line in lines if "eval" in line)


def is_in_step(replica: RedisServer) -> bool:
    """Whether a replica follows its primary."""
    return b"master_link_status:up" in asked(replica, "INFO", "replication")


def has_all_writes(replica: RedisServer, primary: RedisServer) -> bool:
    """Whether a replica has all that was written to its primary, which knows that it follows."""
    is_online = b"state=online" in asked(primary, "INFO", "replication")
    return is_online and is_in_step(replica) and _offset(replica) >= _offset(primary)


def _offset(server: RedisServer) -> int:
    return int(asked(server, "INFO", "replication").split(b"master_repl_offset:")[1].split()[0])


def is_primary(server: RedisServer) -> bool:
    """Whether a server says that it is one."""
    try:
        return b"role:master" in asked(server, "INFO", "replication")
    except RedisError:
        return False


def _ports_with_bus() -> Iterator[int]:
    """Ports that nothing listens on at this moment, with that of the bus."""
    while True:
        port = free_port()
        with socket.socket() as bus, suppress(OSError):
            bus.bind((HOST, port + BUS))
            yield port
