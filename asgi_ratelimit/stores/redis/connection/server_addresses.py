"""The addresses that a URL or a client stands for, as pools of connections whose settings suit a limiter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import unquote, urlsplit, urlunsplit

from redis.asyncio import ConnectionPool, Redis, RedisCluster, Sentinel
from redis.asyncio.connection import SSLConnection, parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import SentinelConnectionPool
from redis.backoff import NoBackoff

from ....errors import ConfigurationError
from ...urls import shown
from .reply_bounds import BoundedParser
from .url_checks import InvalidUrl, reason_of, require_valid

Address: TypeAlias = tuple[str, int]
"""The host and the port of a node of a cluster."""

RedisLike: TypeAlias = str | Redis | RedisCluster

_EXAMPLES = {
    "": '"redis://localhost:6379/0"',
    "cluster": '"redis+cluster://host1:6379,host2:6379"',
    "sentinel": '"redis+sentinel://host1:26379,host2:26379/mymaster"',
}

_LIMITER_SETTINGS: dict[str, Any] = {
    "socket_timeout": None,  # the deadline of a call is stricter, and costs less
    "retry": Retry(NoBackoff(), 0),  # a retry after a timeout would charge twice
    "decode_responses": False,
    "encoding": "utf-8",
    "encoding_errors": "strict",
    "max_connections": 4,
    "parser_class": BoundedParser,
}
"""Settings that suit a limiter, which replace those of a client for other work."""

_NODE_ONLY_SETTINGS = ("response_callbacks", "himport_registry", "redis_connect_func", "event_dispatcher")
"""Settings that a cluster client gives its nodes, and that a connection does not understand."""


@dataclass(frozen=True, slots=True)
class SingleAddress:
    """One Redis, or the primary that sentinels report: ``pool()`` is a new pool of connections to it.

    The log calls it ``name``, a URL without its password. Addresses with the same ``place`` lead to the same data.
    """

    pool: Callable[[], ConnectionPool]
    name: str
    place: str


@dataclass(frozen=True, slots=True)
class ClusterAddresses:
    """A cluster: ``seeds`` are the addresses of some nodes, ``pool(address)`` is a new pool of connections to one.

    ``remap`` turns an address that the cluster reports into one that can be reached from here. Addresses with the same
    ``place`` lead to the same data.
    """

    seeds: tuple[Address, ...]
    pool: Callable[[Address], ConnectionPool]
    remap: Callable[[Address], Address]

    @property
    def place(self) -> str:
        """The seeds as a text; other seeds of the same cluster make another one."""
        return f"cluster {sorted(self.seeds)}"


def addresses_of(url_or_client: RedisLike, timeout: float) -> SingleAddress | ClusterAddresses:
    """The addresses of a URL or a client. Connecting takes at most ``timeout`` seconds.

    Raises ``ConfigurationError`` for anything that is neither a URL of a Redis nor a client.
    """
    overrides = {**_LIMITER_SETTINGS, "socket_connect_timeout": timeout}
    if isinstance(url_or_client, str):
        return _url_addresses(url_or_client, overrides, timeout)
    if isinstance(url_or_client, RedisCluster):
        return _cluster_client_addresses(url_or_client, overrides)
    pool = getattr(url_or_client, "connection_pool", None)
    if isinstance(url_or_client, Redis) and isinstance(pool, SentinelConnectionPool):
        return _sentinel_client_address(pool, overrides, timeout)
    if isinstance(url_or_client, Redis) and isinstance(pool, ConnectionPool):
        settings = {**pool.connection_kwargs, **overrides}
        name = _shown_settings(pool.connection_kwargs, pool.connection_class)
        return SingleAddress(
            lambda: ConnectionPool(connection_class=pool.connection_class, **settings), name, _place(settings)
        )
    raise ConfigurationError(
        "a Redis store needs a URL, a redis.asyncio.Redis or a redis.asyncio.RedisCluster, "
        f'not {shown(url_or_client)}: RedisStore("redis://localhost")'
    )


def _shown_settings(settings: dict[str, Any], kind: type[Any]) -> str:
    """The URL of a client's connections, as ``shown`` formats it."""
    secret = "***@" if settings.get("password") or settings.get("credential_provider") else ""
    if settings.get("path"):
        return shown(f"unix://{secret}{settings['path']}")
    scheme, host = "rediss" if issubclass(kind, SSLConnection) else "redis", settings.get("host", "localhost")
    host = f"[{host}]" if ":" in host else host
    return shown(f"{scheme}://{secret}{host}:{settings.get('port', 6379)}/{settings.get('db') or 0}")


def _place(settings: dict[str, Any]) -> str:
    """Where a connection with these settings leads."""
    server = settings.get("path") or f"{settings.get('host', 'localhost')}:{settings.get('port', 6379)}"
    return f"{server} {settings.get('db') or 0}"


def _url_addresses(url: str, overrides: dict[str, Any], timeout: float) -> SingleAddress | ClusterAddresses:
    scheme, _, kind = url.partition("://")[0].partition("+")
    try:
        require_valid(url, kind)
        if kind == "cluster":
            return _cluster_url_addresses(url, scheme, overrides)
        if kind == "sentinel":
            return _sentinel_url_address(url, scheme, overrides, timeout)
        settings = {"protocol": 2, **parse_url(url), **overrides}
        return SingleAddress(_checked(lambda: ConnectionPool(**settings)), shown(url), _place(settings))
    except Exception as error:  # noqa: BLE001  # redis-py raises many kinds
        reason = reason_of(error, url)
    example = _EXAMPLES.get(kind, _EXAMPLES[""])  # outside of the handler: the error there may quote the password
    raise ConfigurationError(f"{shown(url)} is not a URL of a Redis: {reason}: {example}")


def _cluster_url_addresses(url: str, scheme: str, overrides: dict[str, Any]) -> ClusterAddresses:
    settings = dict(next(_parsed_hosts(url, scheme)), **overrides)
    if settings.get("db"):
        raise InvalidUrl("a cluster has only database 0")
    seeds = tuple([(parsed["host"], int(parsed.get("port", 6379))) for parsed in _parsed_hosts(url, scheme)])
    return _cluster(seeds, settings, lambda address: address)


def _cluster_client_addresses(client: RedisCluster, overrides: dict[str, Any]) -> ClusterAddresses:
    kwargs = {name: value for name, value in client.connection_kwargs.items() if name not in _NODE_ONLY_SETTINGS}
    seeds = tuple([(node.host, int(node.port)) for node in client.nodes_manager.startup_nodes.values()])
    manager = client.nodes_manager
    return _cluster(seeds, {**kwargs, **overrides}, lambda address: manager.remap_host_port(*address))


def _cluster(
    seeds: tuple[Address, ...], settings: dict[str, Any], remap: Callable[[Address], Address]
) -> ClusterAddresses:
    def pool(address: Address) -> ConnectionPool:
        return ConnectionPool(**{"protocol": 2, **settings, "host": address[0], "port": address[1]})

    _checked(lambda: pool(seeds[0]))
    return ClusterAddresses(seeds, pool, remap)


def _sentinel_url_address(url: str, scheme: str, overrides: dict[str, Any], timeout: float) -> SingleAddress:
    service, _, database = unquote(urlsplit(url).path).strip("/").partition("/")
    parts = urlsplit(url)._replace(path=f"/{database}")
    parsed = list(_parsed_hosts(urlunsplit(parts), scheme))
    addresses = [(each["host"], int(each.get("port", 26379))) for each in parsed]
    settings = {name: value for name, value in parsed[0].items() if name not in ("host", "port")}
    own = {name: settings.pop(name) for name in list(settings) if name.startswith("sentinel_")}
    sentinel_options = {name: value for name, value in settings.items() if name.startswith("ssl_")}
    sentinel_options |= {name.removeprefix("sentinel_"): value for name, value in own.items()}
    if settings.pop("connection_class", None) is not None:
        settings["ssl"] = True
        sentinel_options["ssl"] = True
    return _sentinels(
        addresses,
        service,
        {"protocol": 2, **settings, **overrides},
        {**sentinel_options, **_sentinel_settings(timeout)},
        shown(url),
    )


def _sentinel_client_address(pool: SentinelConnectionPool, overrides: dict[str, Any], timeout: float) -> SingleAddress:
    manager = pool.sentinel_manager
    addresses = [
        (client.connection_pool.connection_kwargs["host"], client.connection_pool.connection_kwargs["port"])
        for client in manager.sentinels
    ]
    settings = {name: value for name, value in pool.connection_kwargs.items() if name != "connection_pool"}
    settings["connection_class"] = pool.connection_class
    return _sentinels(
        addresses,
        pool.service_name,
        {**settings, **overrides},
        {**manager.sentinel_kwargs, **_sentinel_settings(timeout)},
        shown(f"redis+sentinel://{','.join([f'{host}:{port}' for host, port in addresses])}/{pool.service_name}"),
    )


class _PrimaryPool(SentinelConnectionPool):
    """Connections to the primary that the sentinels report; those to the sentinels are closed after each report."""

    async def get_master_address(self) -> Any:
        """The address that the sentinels report."""
        try:
            return await super().get_master_address()  # type: ignore[no-untyped-call]
        finally:
            await self.sentinel_manager.aclose()


def _sentinels(
    addresses: list[Address], service: str, settings: dict[str, Any], sentinel_options: dict[str, Any], name: str
) -> SingleAddress:
    def pool() -> ConnectionPool:
        manager = Sentinel(addresses, sentinel_kwargs=sentinel_options)  # type: ignore[no-untyped-call]
        for client in manager.sentinels:
            client.connection_pool.connection_kwargs["parser_class"] = BoundedParser
        return _PrimaryPool(service, manager, **settings)  # type: ignore[no-untyped-call]

    place = f"sentinels {sorted(addresses)} {service} {settings.get('db') or 0}"
    return SingleAddress(_checked(pool), name, place)


def _checked(pool: Callable[[], ConnectionPool]) -> Callable[[], ConnectionPool]:
    """``pool`` itself. Raises ``TypeError`` or ``ValueError`` if its connections do not understand their settings."""
    one = pool()
    one.connection_class(**one.connection_kwargs)
    return pool


def _sentinel_settings(timeout: float) -> dict[str, Any]:
    """Settings for a call to one of several sentinels, which leave time for the second if the first does not answer."""
    half = timeout / 2
    settings = {name: value for name, value in _LIMITER_SETTINGS.items() if name != "parser_class"}
    return {**settings, "socket_timeout": half, "socket_connect_timeout": half}


def _parsed_hosts(url: str, scheme: str) -> Iterator[dict[str, Any]]:
    """redis-py's settings for each host, if a URL names several, separated by commas."""
    parts = urlsplit(url)
    credentials, at, hosts = parts.netloc.rpartition("@")
    for host in hosts.split(","):
        if not host:
            raise InvalidUrl("a host is missing")
        yield dict(parse_url(urlunsplit((scheme, credentials + at + host, parts.path, parts.query, ""))))
