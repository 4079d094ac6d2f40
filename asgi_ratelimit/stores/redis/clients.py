"""What a URL or a client stands for, as new clients of redis-py whose settings suit a limiter.

Each event loop has a client of its own, which is opened at first use, and a new one after a failure.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import re
import socket
import threading
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from ipaddress import ip_address
from typing import Any, TypeAlias

from redis.asyncio import ConnectionPool, Redis, RedisCluster, Sentinel, SentinelConnectionPool, SSLConnection
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from ...errors import ConfigurationError
from ..event_loops import keep, see_all_through
from ..urls import shown, url_of_each_host

RedisLike: TypeAlias = str | Redis | RedisCluster

Client: TypeAlias = Redis | RedisCluster

CLOSE_WITHIN = 2.0
"""The most seconds for which closing waits for Redis."""

_EXAMPLES = {
    "": '"redis://localhost:6379/0", or "unix:///run/redis.sock"',
    "cluster": '"redis+cluster://host1:6379,host2:6379"',
    "sentinel": '"redis+sentinel://host1:26379,host2:26379/mymaster"',
}

_QUOTED = '; a "/", "?", "#", "@" or ":" in a password is written as urllib.parse.quote(password, safe="") writes it'

_UNKNOWN_OPTION = re.compile(r"unexpected keyword argument '(\w+)'")

_OF_CLUSTERS = inspect.signature(RedisCluster.__init__).parameters
"""What a cluster's client takes: redis-py 5 and 8 differ in how retries are switched off."""


@dataclass(frozen=True, slots=True)
class Server:
    """What a URL or a client stands for. The log calls it ``name``, a URL without its password.

    ``scheme`` is ``"rediss"`` with TLS, else ``"redis"``. Servers with the same ``place`` have the same data. ``hosts``
    are the names that are looked up before it is connected to. ``client`` is a new client for the running event loop,
    which connects at its first call.
    """

    name: str
    scheme: str
    place: str
    is_cluster: bool
    hosts: tuple[str, ...]
    client: Callable[[], Client] = field(repr=False)  # it has the password


@dataclass(slots=True)
class _Target:
    """A single Redis, a ``"cluster"``, or the ``service`` of a ``"sentinel"``, and the settings of its connections."""

    kind: str
    connection: type[Any]
    settings: dict[str, Any]
    addresses: list[tuple[str, int]]
    service: str = ""
    of_sentinels: dict[str, Any] = field(default_factory=dict)


def server_of(url_or_client: RedisLike, timeout: float) -> Server:
    """The server of a URL or a client. Connecting takes at most ``timeout`` seconds.

    Raises ``ConfigurationError``, which hides the password, for anything that is neither a URL of a Redis nor a client.
    """
    if not isinstance(url_or_client, str):
        return _server(_of_client(url_or_client), timeout)
    url, problem = url_or_client, ""
    try:
        return _server(_of_url(url), timeout, shown(url))
    except Exception as error:  # noqa: BLE001  # redis-py raises many kinds, and may quote the password
        unknown = _UNKNOWN_OPTION.search(str(error))
        if unknown is not None and "@" not in url.partition("?")[2]:
            problem = (
                f", the option {unknown[1]!r} is not known; the time-out of a call is "
                'RedisStore("redis://localhost", timeout=0.25)'
            )
    example = _EXAMPLES.get(url.partition("://")[0].partition("+")[2], "")
    quoted = _QUOTED if "@" in url else ""
    raise ConfigurationError(f"{shown(url)} is not a URL of a Redis{problem}: {example}{quoted}")


def _of_url(url: str) -> _Target:
    kind = url.partition("://")[0].partition("+")[2]
    service, urls = url_of_each_host(url)
    pools = [ConnectionPool.from_url(each, protocol=2) for each in urls]
    own, connection = pools[0].connection_kwargs, pools[0].connection_class
    of_sentinels = {name: own.pop(name) for name in list(own) if kind and name.startswith("sentinel_")}
    connection(**own)  # raises if it does not understand an option
    if kind == "cluster" and own.get("db"):
        raise ValueError("a cluster has only database 0")
    for_both = {name: value for name, value in own.items() if name.startswith("ssl")}
    for_both["ssl"] = issubclass(connection, SSLConnection)
    for_both |= {name.removeprefix("sentinel_"): value for name, value in of_sentinels.items()}
    addresses = [_address(pool, 26379 if kind == "sentinel" else 6379) for pool in pools]
    return _Target(kind, connection, own, addresses, service, for_both)


def _of_client(client: Any) -> _Target:
    if isinstance(client, RedisCluster):
        own, manager = client.connection_kwargs, client.nodes_manager
        addresses = [(node.host, int(node.port)) for node in manager.startup_nodes.values()]
        settings = {**own, "address_remap": manager.address_remap}
        return _Target("cluster", own.get("connection_class", object), settings, addresses)
    pool = getattr(client, "connection_pool", None)
    if isinstance(pool, SentinelConnectionPool):
        manager = pool.sentinel_manager
        own = {name: value for name, value in pool.connection_kwargs.items() if name != "connection_pool"}
        addresses = [_address(each.connection_pool, 26379) for each in manager.sentinels]
        return _Target("sentinel", pool.connection_class, own, addresses, pool.service_name, manager.sentinel_kwargs)
    if isinstance(pool, ConnectionPool):
        return _Target("", pool.connection_class, pool.connection_kwargs, [_address(pool, 6379)])
    raise ConfigurationError(
        "a Redis store needs a URL, a redis.asyncio.Redis or a redis.asyncio.RedisCluster, "
        f'not {shown(client)}: RedisStore("redis://localhost")'
    )


def _address(pool: Any, port: int) -> tuple[str, int]:
    settings = pool.connection_kwargs
    return settings.get("host", "localhost"), int(settings.get("port", port))


def _server(target: _Target, timeout: float, name: str | None = None) -> Server:
    has_tls, path = issubclass(target.connection, SSLConnection), target.settings.get("path")
    scheme = "rediss" if has_tls else "redis"
    settings = {
        **target.settings,
        "socket_timeout": None,  # a take has a deadline of its own
        "socket_connect_timeout": timeout,
        "retry": Retry(NoBackoff(), 0),  # a retry after a timeout would charge twice
        "retry_on_timeout": False,
        "decode_responses": False,
        "encoding": "utf-8",
        "encoding_errors": "strict",
    }
    if target.kind:
        settings["ssl"] = has_tls
    client = partial(_client, target, settings, timeout)
    client()  # raises if it does not understand a setting
    database = target.settings.get("db") or 0
    if name is None:
        kind = target.kind and f"+{target.kind}"
        hosts = ",".join([f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in target.addresses])
        name = shown(f"unix://{path}" if path else f"{scheme}{kind}://{hosts}/{target.service or database}")
    place = f"{target.kind} {path or sorted(target.addresses)} {target.service} {database}"
    to_look_up = [] if path else [host for host, _ in target.addresses if host != "localhost" and not _is_address(host)]
    return Server(name, scheme, place, target.kind == "cluster", tuple(to_look_up), client)


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _client(target: _Target, settings: dict[str, Any], timeout: float) -> Client:
    if target.kind == "cluster":
        of_one_host = ("path", "host", "port", "db")
        own = {name: value for name, value in settings.items() if name in _OF_CLUSTERS and name not in of_one_host}
        own["socket_timeout"] = timeout  # a node that does not answer must not keep the others from it
        if "connection_error_retry_attempts" in _OF_CLUSTERS:  # redis-py 5
            own.pop("retry", None)
            own |= {"cluster_error_retry_attempts": 0, "connection_error_retry_attempts": 0}
        return RedisCluster(startup_nodes=[ClusterNode(host, port) for host, port in target.addresses], **own)
    if target.kind == "sentinel":
        half = timeout / 2  # leaves time for the second sentinel if the first does not answer
        options = {"socket_timeout": half, "socket_connect_timeout": half, "retry": Retry(NoBackoff(), 0)}
        of_sentinels = {**target.of_sentinels, **options}
        manager = Sentinel(target.addresses, sentinel_kwargs=of_sentinels)  # type: ignore[no-untyped-call]
        own = {name: value for name, value in settings.items() if name not in ("host", "port")}
        client: _PrimaryClient = manager.master_for(target.service, redis_class=_PrimaryClient, **own)
        client.manager = manager
        return client
    return Redis.from_pool(ConnectionPool(connection_class=target.connection, **settings))


class _PrimaryClient(Redis):
    """A client of the primary that sentinels report, which closes the connections to them as well."""

    manager: Sentinel

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        """Close all connections."""
        await super().aclose(close_connection_pool)
        for sentinel in self.manager.sentinels:
            await sentinel.aclose()


class Connection:
    """The client of one event loop for one server, or for all nodes of a cluster; redis-py knows which slot is where.

    ``lookup`` looks up the names of the server's hosts before it is connected to.
    """

    def __init__(self, server: Server, lookup: NameLookup) -> None:
        self._server = server
        self._lookup = lookup
        self.client: Any = None
        """The client, once it is open."""
        self.turn = asyncio.Lock()
        """For callers that take turns: redis-py opens a connection for each command that is under way."""
        self._opening: asyncio.Task[Any] | None = None

    async def open(self) -> Any:
        """Open the client. A caller that gives up does not end that: another one may come to see it done."""
        if self._opening is None or self._opening.done():
            self._opening = self.keep(self._open())
        return await asyncio.shield(self._opening)

    async def _open(self) -> Any:
        if self._server.hosts:
            await self._lookup.run()
        client: Any = self._server.client()
        if self._server.is_cluster:
            await client.initialize()
        self.client = client
        return client

    def failed(self) -> None:
        """A call has failed: the next one opens another client.

        The other nodes of a cluster go on meanwhile, and it is asked in the background which slot is where.
        """
        if not self._server.is_cluster:
            self.drop()
        elif self.client is not None and (self._opening is None or self._opening.done()):
            self._opening = self.keep(self.client.nodes_manager.initialize())

    def drop(self) -> None:
        """Close the client in the background, as late answers may follow; the next call opens another one at once."""
        client, self.client, self._opening, self.turn = self.client, None, None, asyncio.Lock()
        if client is not None:
            self.keep(client.aclose())

    async def aclose(self) -> None:
        """Close the client after its answers; a server that does not answer keeps nobody waiting."""
        await see_all_through(self)
        self.drop()
        await see_all_through(self)

    def keep(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run ``work`` in a task of its own, whose error nobody has to see."""
        return keep(self, asyncio.get_running_loop().create_task(work))


class NameLookup:
    """Looks up the hosts of a server in a thread of its own, one at a time, before a connection is tried.

    asyncio would look them up in the executor that the app uses too, and a slow name server would hold its threads.
    """

    def __init__(self, hosts: Sequence[str]) -> None:
        self._hosts = hosts
        self._lock = threading.Lock()
        self._result: concurrent.futures.Future[None] | None = None

    async def run(self) -> None:
        """Wait for the lookup that is under way, or a new one. Raises ``OSError`` if no host has an address."""
        with self._lock:
            if self._result is None or self._result.done():
                self._result = concurrent.futures.Future()
                self._result.set_running_or_notify_cancel()  # nobody who gives up ends it for the others
                thread = threading.Thread(
                    target=self._look_up, args=(self._result,), name="asgi_ratelimit lookup", daemon=True
                )
                thread.start()
            result = self._result
        await asyncio.wrap_future(result)

    def _look_up(self, result: concurrent.futures.Future[None]) -> None:
        errors = []
        for host in self._hosts:
            try:
                socket.getaddrinfo(host, None)
            except (OSError, UnicodeError) as error:
                errors.append(OSError(f"{host}: {error}"))
        if len(errors) == len(self._hosts):
            result.set_exception(errors[0])
        else:
            result.set_result(None)
