"""Where a Redis is: what a URL or a ready client says of it, as pools of connections whose settings suit a limiter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import urlsplit, urlunsplit

from redis.asyncio import ConnectionPool, Redis, RedisCluster, Sentinel
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import SentinelConnectionPool
from redis.backoff import NoBackoff

from ....errors import ConfigurationError

Address: TypeAlias = tuple[str, int]
"""The host and the port of a node of a cluster."""

RedisLike: TypeAlias = str | Redis | RedisCluster

_EXAMPLES = {
    "": '"redis://localhost:6379/0"',
    "cluster": '"redis+cluster://host1:6379,host2:6379"',
    "sentinel": '"redis+sentinel://host1:26379,host2:26379/mymaster"',
}

_OURS: dict[str, Any] = {
    "socket_timeout": None,  # the deadline of a call covers it, for less
    "retry": Retry(NoBackoff(), 0),  # a retry after a time-out would charge twice
    "decode_responses": False,
    "max_connections": 4,
}
"""Settings that suit a limiter, in place of those that a client has for other work."""

_OF_CLUSTER_CLIENTS = ("response_callbacks", "himport_registry", "redis_connect_func", "event_dispatcher")
"""What the nodes of a cluster client are given besides the settings of a connection."""


@dataclass(frozen=True, slots=True)
class Single:
    """One Redis, or the primary that sentinels name: ``pool()`` is a new pool of connections to it."""

    pool: Callable[[], ConnectionPool]


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster: some of its nodes' addresses, and ``pool(address)``, a new pool of connections to one.

    ``remap`` turns an address that the cluster tells into one that can be reached from here.
    """

    seeds: tuple[Address, ...]
    pool: Callable[[Address], ConnectionPool]
    remap: Callable[[Address], Address]


def source_of(url_or_client: RedisLike, timeout: float) -> Single | Cluster:
    """Where a URL or a client leads. Connecting takes ``timeout`` seconds at the most.

    Raises ``ConfigurationError`` for what is neither a URL of a Redis nor a client.
    """
    ours = {**_OURS, "socket_connect_timeout": timeout}
    if isinstance(url_or_client, str):
        return _of_url(url_or_client, ours, timeout)
    if isinstance(url_or_client, RedisCluster):
        return _of_cluster_client(url_or_client, ours)
    pool = getattr(url_or_client, "connection_pool", None)
    if isinstance(url_or_client, Redis) and isinstance(pool, SentinelConnectionPool):
        return _of_sentinel_client(pool, ours, timeout)
    if isinstance(url_or_client, Redis) and isinstance(pool, ConnectionPool):
        settings = {**pool.connection_kwargs, **ours}
        return Single(lambda: ConnectionPool(connection_class=pool.connection_class, **settings))
    raise ConfigurationError(
        "a Redis store needs a URL, a redis.asyncio.Redis or a redis.asyncio.RedisCluster, "
        f'not {repr(url_or_client)[:80]}: RedisStore("redis://localhost")'
    )


def _of_url(url: str, ours: dict[str, Any], timeout: float) -> Single | Cluster:
    scheme, _, kind = urlsplit(url).scheme.partition("+")
    try:
        if kind == "cluster":
            return _of_cluster_url(url, scheme, ours)
        if kind == "sentinel":
            return _of_sentinel_url(url, scheme, ours, timeout)
        settings = {"protocol": 2, **parse_url(url), **ours}
        return Single(_checked(lambda: ConnectionPool(**settings)))
    except (TypeError, ValueError) as error:
        example = _EXAMPLES.get(kind, _EXAMPLES[""])
        raise ConfigurationError(f"{url!r} is no URL of a Redis: {error}: {example}") from error


def _of_cluster_url(url: str, scheme: str, ours: dict[str, Any]) -> Cluster:
    settings = dict(next(_parsed_hosts(url, scheme)), **ours)
    if settings.get("db"):
        raise ValueError("a cluster has no databases but 0")
    seeds = tuple([(parsed["host"], int(parsed.get("port", 6379))) for parsed in _parsed_hosts(url, scheme)])
    return _cluster(seeds, settings, lambda address: address)


def _of_cluster_client(client: RedisCluster, ours: dict[str, Any]) -> Cluster:
    kwargs = {name: value for name, value in client.connection_kwargs.items() if name not in _OF_CLUSTER_CLIENTS}
    seeds = tuple([(node.host, int(node.port)) for node in client.nodes_manager.startup_nodes.values()])
    manager = client.nodes_manager
    return _cluster(seeds, {**kwargs, **ours}, lambda address: manager.remap_host_port(*address))


def _cluster(seeds: tuple[Address, ...], settings: dict[str, Any], remap: Callable[[Address], Address]) -> Cluster:
    def pool(address: Address) -> ConnectionPool:
        return ConnectionPool(**{"protocol": 2, **settings, "host": address[0], "port": address[1]})

    _checked(lambda: pool(seeds[0]))
    return Cluster(seeds, pool, remap)


def _of_sentinel_url(url: str, scheme: str, ours: dict[str, Any], timeout: float) -> Single:
    service, _, database = urlsplit(url).path.strip("/").partition("/")
    if not service:
        raise ValueError("the path must name the service that the sentinels watch")
    parts = urlsplit(url)._replace(path=f"/{database}")
    parsed = list(_parsed_hosts(urlunsplit(parts), scheme))
    addresses = [(each["host"], int(each.get("port", 26379))) for each in parsed]
    settings = {name: value for name, value in parsed[0].items() if name not in ("host", "port")}
    of_sentinels = {
        name: settings.pop(f"sentinel_{name}") for name in ("username", "password") if f"sentinel_{name}" in settings
    }
    if settings.pop("connection_class", None) is not None:
        settings["ssl"] = True
        of_sentinels["ssl"] = True
    return _sentinels(addresses, service, {"protocol": 2, **settings, **ours}, {**of_sentinels, **_brief(timeout)})


def _of_sentinel_client(pool: SentinelConnectionPool, ours: dict[str, Any], timeout: float) -> Single:
    manager = pool.sentinel_manager
    told = [client.connection_pool.connection_kwargs for client in manager.sentinels]
    addresses = [(each["host"], each["port"]) for each in told]
    settings = {name: value for name, value in pool.connection_kwargs.items() if name != "connection_pool"}
    settings["connection_class"] = pool.connection_class
    return _sentinels(
        addresses, pool.service_name, {**settings, **ours}, {**manager.sentinel_kwargs, **_brief(timeout)}
    )


class _PrimaryPool(SentinelConnectionPool):
    """Connections to the primary that the sentinels name, and none to these once they have."""

    async def get_master_address(self) -> Any:
        """Ask the sentinels."""
        try:
            return await super().get_master_address()  # type: ignore[no-untyped-call]
        finally:
            await self.sentinel_manager.aclose()


def _sentinels(
    addresses: list[Address], service: str, settings: dict[str, Any], of_sentinels: dict[str, Any]
) -> Single:
    def pool() -> ConnectionPool:
        manager = Sentinel(addresses, sentinel_kwargs=of_sentinels)  # type: ignore[no-untyped-call]
        return _PrimaryPool(service, manager, **settings)  # type: ignore[no-untyped-call]

    return Single(_checked(pool))


def _checked(pool: Callable[[], ConnectionPool]) -> Callable[[], ConnectionPool]:
    """``pool`` itself, once its connections are known to understand all their settings."""
    made = pool()
    made.connection_class(**made.connection_kwargs)
    return pool


def _brief(timeout: float) -> dict[str, Any]:
    """Settings for a question to one of several sentinels: if the first is silent, there is time for the second."""
    half = timeout / 2
    return {**_OURS, "socket_timeout": half, "socket_connect_timeout": half}


def _parsed_hosts(url: str, scheme: str) -> Iterator[dict[str, Any]]:
    """What redis-py makes of the URL of each host, where a URL names several, separated by commas."""
    parts = urlsplit(url)
    credentials, at, hosts = parts.netloc.rpartition("@")
    for host in hosts.split(","):
        if not host:
            raise ValueError("a host is missing")
        yield dict(parse_url(urlunsplit((scheme, credentials + at + host, parts.path, parts.query, ""))))
