"""What a URL or a client stands for, as new clients of redis-py whose settings suit a limiter.

Each event loop has a client of its own, which is opened at first use, and a new one after a failure.
"""

from __future__ import annotations

import asyncio
import inspect
import re
import socket
import threading
from asyncio import AbstractEventLoop, Future
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, TypeAlias
from urllib.parse import unquote, urlsplit

from redis.asyncio import ConnectionPool, Redis, RedisCluster, Sentinel, SentinelConnectionPool, SSLConnection
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from ...errors import ConfigurationError
from ..urls import SCHEMES, shown

RedisLike: TypeAlias = str | Redis | RedisCluster

Client: TypeAlias = Redis | RedisCluster

Address: TypeAlias = tuple[str, int]

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

    Servers with the same ``place`` have the same data. ``hosts`` are the names that are looked up before it is
    connected to. ``client`` is a new client for the running event loop, which connects at its first call.
    """

    name: str
    place: str
    is_cluster: bool
    hosts: tuple[str, ...]
    client: Callable[[], Client]


def server_of(url_or_client: RedisLike, timeout: float) -> Server:
    """The server of a URL or a client. Connecting takes at most ``timeout`` seconds.

    Raises ``ConfigurationError``, which hides the password, for anything that is neither a URL of a Redis nor a client.
    """
    settings = {
        "socket_timeout": None,  # a take has a deadline of its own
        "socket_connect_timeout": timeout,
        "retry": Retry(NoBackoff(), 0),  # a retry after a timeout would charge twice
        "retry_on_timeout": False,
        "decode_responses": False,
        "encoding": "utf-8",
        "encoding_errors": "strict",
    }
    if isinstance(url_or_client, str):
        return _of_url(url_or_client, settings, timeout)
    if isinstance(url_or_client, RedisCluster):
        manager = url_or_client.nodes_manager
        own = {**url_or_client.connection_kwargs, **settings, "address_remap": manager.address_remap}
        nodes = [(node.host, int(node.port)) for node in manager.startup_nodes.values()]
        return _cluster(nodes, own, own.get("connection_class", object), timeout)
    pool = getattr(url_or_client, "connection_pool", None)
    if isinstance(pool, SentinelConnectionPool):
        own = {name: value for name, value in pool.connection_kwargs.items() if name != "connection_pool"}
        own |= settings | {"ssl": issubclass(pool.connection_class, SSLConnection)}
        sentinels = pool.sentinel_manager
        addresses = [_address(each.connection_pool.connection_kwargs, 26379) for each in sentinels.sentinels]
        return _sentinels(addresses, pool.service_name, own, dict(sentinels.sentinel_kwargs), timeout)
    if isinstance(pool, ConnectionPool):
        return _single(pool.connection_class, {**pool.connection_kwargs, **settings})
    raise ConfigurationError(
        "a Redis store needs a URL, a redis.asyncio.Redis or a redis.asyncio.RedisCluster, "
        f'not {shown(url_or_client)}: RedisStore("redis://localhost")'
    )


def _of_url(url: str, settings: dict[str, Any], timeout: float) -> Server:
    kind = url.partition("://")[0].partition("+")[2]
    problem = ""
    try:
        service, urls = _each_host(url, kind)
        pools = [ConnectionPool.from_url(each, protocol=2) for each in urls]
        for pool in pools:
            pool.connection_kwargs.update(settings)
        own, connection = pools[0].connection_kwargs, pools[0].connection_class
        if not kind:
            return _single(connection, own, shown(url))
        of_sentinels = {name: own.pop(name) for name in list(own) if name.startswith("sentinel_")}
        connection(**own)  # raises if it does not understand an option
        addresses = [_address(each.connection_kwargs, 26379 if kind == "sentinel" else 6379) for each in pools]
        if kind == "cluster":
            if own.get("db"):
                raise ValueError("a cluster has only database 0")
            return _cluster(addresses, own, connection, timeout, shown(url))
        own = {name: value for name, value in own.items() if name not in ("host", "port")}
        own["ssl"] = issubclass(connection, SSLConnection)
        options = {name: value for name, value in own.items() if name.startswith("ssl")}
        options |= {name.removeprefix("sentinel_"): value for name, value in of_sentinels.items()}
        return _sentinels(addresses, service, own, options, timeout, shown(url))
    except Exception as error:  # noqa: BLE001  # redis-py raises many kinds, and may quote the password
        unknown = _UNKNOWN_OPTION.search(str(error))
        if unknown is not None and "@" not in urlsplit(url).query:
            problem = (
                f", the option {unknown[1]!r} is not known; the time-out of a call is "
                'RedisStore("redis://localhost", timeout=0.25)'
            )
    quoted = _QUOTED if "@" in url else ""
    raise ConfigurationError(f"{shown(url)} is not a URL of a Redis{problem}: {_EXAMPLES.get(kind, '')}{quoted}")


def _each_host(url: str, kind: str) -> tuple[str, list[str]]:
    """The service of sentinels, and a URL of each host, as redis-py reads it.

    Raises ``ValueError`` for what redis-py would read as something else: it ignores a path that is no number, and takes
    the default for a host that is missing.
    """
    scheme, parts = url.partition("://")[0], urlsplit(url)
    credentials, at, hosts = parts.netloc.rpartition("@")
    path, service = parts.path, ""
    if kind == "sentinel":
        service, _, database = unquote(path).strip("/").partition("/")
        path = f"/{database}"
    is_socket = scheme == "unix"
    is_right = scheme in SCHEMES and not parts.fragment and "@" not in path
    if is_socket:
        is_right = is_right and not hosts and path.strip("/") != ""
    else:
        is_right = is_right and re.fullmatch("/?[0-9]*", path) is not None and bool(service) is (kind == "sentinel")
        is_right = is_right and (bool(kind) or "," not in hosts) and (hosts != "" or not (at or kind))
    options = parts.query.split("&") if parts.query else []
    if not is_right or not all("=" in option for option in options):
        raise ValueError(url)
    for host in hosts.split(",") if hosts and not is_socket else ():
        address = urlsplit(f"//{host}")
        if not address.hostname or address.port == 0:
            raise ValueError(url)
    base = scheme.partition("+")[0]
    return service, [f"{base}://{credentials}{at}{host}{path}?{parts.query}" for host in hosts.split(",")]


def _single(kind: type[Any], settings: dict[str, Any], name: str | None = None) -> Server:
    kind(**settings)  # raises if it does not understand a setting

    def client() -> Client:
        return Redis.from_pool(ConnectionPool(connection_class=kind, **settings))

    path, (host, port), database = settings.get("path"), _address(settings, 6379), settings.get("db") or 0
    scheme = "rediss" if issubclass(kind, SSLConnection) else "redis"
    shown_host = f"[{host}]" if ":" in host else host
    name = name or shown(f"unix://{path}" if path else f"{scheme}://{shown_host}:{port}/{database}")
    return Server(name, f"{path or f'{host}:{port}'} {database}", False, () if path else _to_look_up([host]), client)


def _cluster(
    nodes: list[Address], settings: dict[str, Any], kind: type[Any], timeout: float, name: str | None = None
) -> Server:
    of_one_host = ("path", "host", "port", "db")
    own = {key: value for key, value in settings.items() if key in _OF_CLUSTERS and key not in of_one_host}
    own["socket_timeout"] = timeout  # a node that does not answer must not keep the others from it
    own["ssl"] = issubclass(kind, SSLConnection)
    if "connection_error_retry_attempts" in _OF_CLUSTERS:  # redis-py 5
        own.pop("retry", None)
        own |= {"cluster_error_retry_attempts": 0, "connection_error_retry_attempts": 0}

    def client() -> Client:
        return RedisCluster(startup_nodes=[ClusterNode(host, port) for host, port in nodes], **own)

    client()  # raises if it does not understand a setting
    name = name or shown(f"redis+cluster://{','.join([f'{host}:{port}' for host, port in nodes])}")
    return Server(name, f"cluster {sorted(nodes)}", True, _to_look_up([host for host, _ in nodes]), client)


class _PrimaryClient(Redis):
    """A client of the primary that sentinels report, which closes the connections to them as well."""

    manager: Sentinel

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        """Close all connections."""
        await super().aclose(close_connection_pool)
        for sentinel in self.manager.sentinels:
            await sentinel.aclose()


def _sentinels(
    addresses: list[Address],
    service: str,
    settings: dict[str, Any],
    options: dict[str, Any],
    timeout: float,
    name: str | None = None,
) -> Server:
    half = timeout / 2  # leaves time for the second sentinel if the first does not answer
    options = {**options, "socket_timeout": half, "socket_connect_timeout": half, "retry": Retry(NoBackoff(), 0)}

    def client() -> Client:
        manager = Sentinel(addresses, sentinel_kwargs=options)  # type: ignore[no-untyped-call]
        primary: _PrimaryClient = manager.master_for(service, redis_class=_PrimaryClient, **settings)
        primary.manager = manager
        return primary

    client()  # raises if it does not understand a setting
    hosts = [host for host, _ in addresses]
    name = name or shown(f"redis+sentinel://{','.join([f'{host}:{port}' for host, port in addresses])}/{service}")
    place = f"sentinels {sorted(addresses)} {service} {settings.get('db') or 0}"
    return Server(name, place, False, _to_look_up(hosts), client)


def _address(settings: dict[str, Any], port: int) -> Address:
    return settings.get("host", "localhost"), int(settings.get("port", port))


def _to_look_up(hosts: list[str]) -> tuple[str, ...]:
    return tuple([host for host in hosts if host != "localhost" and not _is_address(host)])


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


class Connection:
    """The client of one event loop for one server, or for all nodes of a cluster; redis-py knows which slot is where.

    ``lookup`` looks up the names of the server's hosts before it is connected to.
    """

    def __init__(self, server: Server, lookup: NameLookup) -> None:
        self._server = server
        self._lookup = lookup
        self.client: Any = None
        """The client, once it is open."""
        self._opening: asyncio.Task[Any] | None = None
        self._tasks: set[asyncio.Future[Any]] = set()

    async def open(self) -> Any:
        """Open the client. A caller that gives up does not end that: another one may come to see it done."""
        if self._opening is None or self._opening.done():
            self._opening = self.keep(self._open())
        return await asyncio.shield(self._opening)

    async def _open(self) -> Any:
        if self._server.hosts:
            error = await self._lookup.start(asyncio.get_running_loop())
            if error is not None:
                raise error
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
        client, self.client, self._opening = self.client, None, None
        if client is not None:
            self.keep(client.aclose())

    async def aclose(self) -> None:
        """Close the client after its answers; a server that does not answer keeps nobody waiting."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_WITHIN / 2)
        self.drop()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_WITHIN / 2)

    def keep(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run ``work`` in a task of its own, whose error nobody has to see."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()


class NameLookup:
    """Looks up the hosts of a server in a thread of its own, one at a time, before a connection is tried.

    asyncio would look them up in the executor that the app uses too, and a slow name server would hold its threads.
    """

    def __init__(self, hosts: Sequence[str]) -> None:
        self._hosts = hosts
        self._lock = threading.Lock()
        self._waiting: list[tuple[AbstractEventLoop, Future[OSError | None]]] | None = None

    def start(self, loop: AbstractEventLoop) -> Future[OSError | None]:
        """The error of the lookup that is under way, or of the one that this starts, if no host has an address."""
        ended: Future[OSError | None] = loop.create_future()
        with self._lock:
            is_under_way = self._waiting is not None
            self._waiting = [*(self._waiting or ()), (loop, ended)]
        if not is_under_way:
            threading.Thread(target=self._look_up, name="asgi_ratelimit lookup", daemon=True).start()
        return ended

    def _look_up(self) -> None:
        errors = []
        for host in self._hosts:
            try:
                socket.getaddrinfo(host, None)
            except (OSError, UnicodeError) as error:
                errors.append(OSError(f"{host}: {error}"))
        with self._lock:
            waiting, self._waiting = self._waiting or (), None
        for loop, ended in waiting:
            with suppress(RuntimeError):  # it is closed
                loop.call_soon_threadsafe(_end, ended, errors[0] if len(errors) == len(self._hosts) else None)


def _end(ended: Future[OSError | None], error: OSError | None) -> None:
    if not ended.done():
        ended.set_result(error)
