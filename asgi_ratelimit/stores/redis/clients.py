"""What a URL or a client stands for, as new clients of redis-py whose settings suit a limiter."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, TypeAlias
from urllib.parse import parse_qs, unquote, urlsplit, urlunsplit

from redis.asyncio import ConnectionPool, Redis, RedisCluster, Sentinel, SentinelConnectionPool, SSLConnection
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from ...errors import ConfigurationError
from ..urls import SCHEMES, shown

RedisLike: TypeAlias = str | Redis | RedisCluster

Client: TypeAlias = Redis | RedisCluster

_EXAMPLES = {
    "": '"redis://localhost:6379/0"',
    "cluster": '"redis+cluster://host1:6379,host2:6379"',
    "sentinel": '"redis+sentinel://host1:26379,host2:26379/mymaster"',
}

_QUOTED = 'a "/", "?", "#", "@" or ":" in a password is written as urllib.parse.quote(password, safe="") writes it'

_HOST = re.compile(r"(\[[^\]]*\]|[^:\[\]]*)(?::(.*))?", re.DOTALL)

_OBJECTS = re.compile("connection_class|credential_provider|parser_class|redis_connect_func|retry|retry_on_error")
"""Options of redis-py whose values are objects."""

_UNKNOWN_OPTION = re.compile(r"unexpected keyword argument '(\w+)'")

_CONNECTION_ONLY = ("path", "host", "port", "db")

_CLUSTER_PARAMETERS = inspect.signature(RedisCluster.__init__).parameters
"""What a cluster's client takes: redis-py 5 and 8 differ in how retries are switched off."""


class InvalidUrl(ValueError):
    """Raised for an invalid URL, with a reason that quotes nothing from it but names of options."""


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
        return _server_of_url(url_or_client, settings, timeout)
    if isinstance(url_or_client, RedisCluster):
        return _server_of_cluster_client(url_or_client, settings, timeout)
    pool = getattr(url_or_client, "connection_pool", None)
    if isinstance(url_or_client, Redis) and isinstance(pool, SentinelConnectionPool):
        return _server_of_sentinel_client(pool, settings, timeout)
    if isinstance(url_or_client, Redis) and isinstance(pool, ConnectionPool):
        own = {**pool.connection_kwargs, **settings}
        return _single(pool.connection_class, own, _shown_settings(own, pool.connection_class))
    raise ConfigurationError(
        "a Redis store needs a URL, a redis.asyncio.Redis or a redis.asyncio.RedisCluster, "
        f'not {shown(url_or_client)}: RedisStore("redis://localhost")'
    )


def _server_of_url(url: str, settings: dict[str, Any], timeout: float) -> Server:
    scheme, _, kind = url.partition("://")[0].partition("+")
    try:
        _require_valid(url, kind)
        if kind == "cluster":
            parsed = [_parsed(each, settings) for each in _each_host(url, scheme)]
            if parsed[0].connection_kwargs.get("db"):
                raise InvalidUrl("a cluster has only database 0")
            nodes = [_address(pool, 6379) for pool in parsed]
            return _cluster(nodes, _cluster_settings(parsed[0]), timeout, shown(url))
        if kind == "sentinel":
            return _server_of_sentinel_url(url, scheme, settings, timeout)
        pool = _parsed(url, settings)
        return _single(pool.connection_class, pool.connection_kwargs, shown(url))
    except Exception as error:  # noqa: BLE001  # redis-py raises many kinds
        reason = _reason_of(error, url)
    example = _EXAMPLES.get(kind, _EXAMPLES[""])  # outside of the handler: the error there may quote the password
    raise ConfigurationError(f"{shown(url)} is not a URL of a Redis: {reason}: {example}")


def _single(kind: type[Any], settings: dict[str, Any], name: str) -> Server:
    kind(**settings)  # raises if it does not understand a setting

    def client() -> Client:
        return Redis.from_pool(ConnectionPool(connection_class=kind, **settings))

    path, host, port = settings.get("path"), settings.get("host", "localhost"), settings.get("port", 6379)
    place = f"{path or f'{host}:{port}'} {settings.get('db') or 0}"
    return Server(name, place, False, () if path else _to_look_up([host]), client)


def _cluster(nodes: list[tuple[str, int]], settings: dict[str, Any], timeout: float, name: str) -> Server:
    own = {**settings, "socket_timeout": timeout}  # a node that does not answer must not keep the others from it
    if "connection_error_retry_attempts" in _CLUSTER_PARAMETERS:  # redis-py 5
        own.pop("retry", None)
        own |= {"cluster_error_retry_attempts": 0, "connection_error_retry_attempts": 0}

    def client() -> Client:
        return RedisCluster(startup_nodes=[ClusterNode(host, port) for host, port in nodes], **own)

    client()  # raises if it does not understand a setting
    return Server(name, f"cluster {sorted(nodes)}", True, _to_look_up([host for host, _ in nodes]), client)


def _cluster_settings(pool: ConnectionPool) -> dict[str, Any]:
    """The settings of a cluster's client for the connections of a pool."""
    pool.connection_class(**pool.connection_kwargs)  # raises if it does not understand a setting
    settings = {
        name: value
        for name, value in pool.connection_kwargs.items()
        if name in _CLUSTER_PARAMETERS and name not in _CONNECTION_ONLY
    }
    return settings | ({"ssl": True} if issubclass(pool.connection_class, SSLConnection) else {})


def _server_of_cluster_client(client: RedisCluster, settings: dict[str, Any], timeout: float) -> Server:
    given = {
        name: value
        for name, value in {**client.connection_kwargs, **settings}.items()
        if name in _CLUSTER_PARAMETERS and name not in _CONNECTION_ONLY
    }
    manager = client.nodes_manager
    nodes = [(node.host, int(node.port)) for node in manager.startup_nodes.values()]
    if "address_remap" in _CLUSTER_PARAMETERS:
        given["address_remap"] = manager.address_remap
    if issubclass(client.connection_kwargs.get("connection_class", object), SSLConnection):
        given["ssl"] = True
    return _cluster(nodes, given, timeout, shown(f"redis+cluster://{','.join([f'{h}:{p}' for h, p in nodes])}"))


class _PrimaryClient(Redis):
    """A client of the primary that sentinels report, which closes the connections to them as well."""

    manager: Sentinel

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        """Close all connections."""
        await super().aclose(close_connection_pool)
        for sentinel in self.manager.sentinels:
            await sentinel.aclose()


def _server_of_sentinel_url(url: str, scheme: str, settings: dict[str, Any], timeout: float) -> Server:
    service, _, database = unquote(urlsplit(url).path).strip("/").partition("/")
    plain = urlunsplit(urlsplit(url)._replace(path=f"/{database}"))
    pools = [_parsed(each, settings) for each in _each_host(plain, scheme)]
    own = {name: value for name, value in pools[0].connection_kwargs.items() if name not in ("host", "port")}
    of_sentinels = {name: own.pop(name) for name in list(own) if name.startswith("sentinel_")}
    options = {name: value for name, value in own.items() if name.startswith("ssl_")}
    options |= {name.removeprefix("sentinel_"): value for name, value in of_sentinels.items()}
    if issubclass(pools[0].connection_class, SSLConnection):
        own["ssl"] = options["ssl"] = True
    return _sentinels([_address(pool, 26379) for pool in pools], service, own, options, timeout, shown(url))


def _server_of_sentinel_client(pool: SentinelConnectionPool, settings: dict[str, Any], timeout: float) -> Server:
    manager = pool.sentinel_manager
    addresses = [_address(client.connection_pool, 26379) for client in manager.sentinels]
    own = {name: value for name, value in pool.connection_kwargs.items() if name != "connection_pool"} | settings
    if issubclass(pool.connection_class, SSLConnection):
        own["ssl"] = True
    hosts = ",".join([f"{host}:{port}" for host, port in addresses])
    name = shown(f"redis+sentinel://{hosts}/{pool.service_name}")
    return _sentinels(addresses, pool.service_name, own, dict(manager.sentinel_kwargs), timeout, name)


def _sentinels(
    addresses: list[tuple[str, int]],
    service: str,
    settings: dict[str, Any],
    options: dict[str, Any],
    timeout: float,
    name: str,
) -> Server:
    half = timeout / 2  # leaves time for the second sentinel if the first does not answer
    options = {**options, "socket_timeout": half, "socket_connect_timeout": half, "retry": Retry(NoBackoff(), 0)}

    def client() -> Client:
        manager = Sentinel(addresses, sentinel_kwargs=options)  # type: ignore[no-untyped-call]
        primary: _PrimaryClient = manager.master_for(service, redis_class=_PrimaryClient, **settings)
        primary.manager = manager
        return primary

    pool = client().connection_pool  # type: ignore[union-attr]  # it is no cluster's
    pool.connection_class(**pool.connection_kwargs)  # raises if it does not understand a setting
    place = f"sentinels {sorted(addresses)} {service} {settings.get('db') or 0}"
    return Server(name, place, False, _to_look_up([host for host, _ in addresses]), client)


def _parsed(url: str, settings: dict[str, Any]) -> ConnectionPool:
    """What redis-py reads from the URL of one host; the settings of a limiter replace what the URL says."""
    pool = ConnectionPool.from_url(url, protocol=2)
    pool.connection_kwargs.update(settings)
    return pool


def _address(pool: ConnectionPool, port: int) -> tuple[str, int]:
    return pool.connection_kwargs.get("host", "localhost"), int(pool.connection_kwargs.get("port", port))


def _each_host(url: str, scheme: str) -> Iterator[str]:
    """A URL for each host, if one names several, separated by commas."""
    parts = urlsplit(url)
    credentials, at, hosts = parts.netloc.rpartition("@")
    for host in hosts.split(","):
        yield urlunsplit((scheme, credentials + at + host, parts.path, parts.query, ""))


def _to_look_up(hosts: list[str]) -> tuple[str, ...]:
    return tuple([host for host in hosts if host != "localhost" and not _is_address(host)])


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _shown_settings(settings: dict[str, Any], kind: type[Any]) -> str:
    """The URL of a client's connections, as ``shown`` formats it."""
    secret = "***@" if settings.get("password") or settings.get("credential_provider") else ""
    if settings.get("path"):
        return shown(f"unix://{secret}{settings['path']}")
    scheme, host = "rediss" if issubclass(kind, SSLConnection) else "redis", settings.get("host", "localhost")
    host = f"[{host}]" if ":" in host else host
    return shown(f"{scheme}://{secret}{host}:{settings.get('port', 6379)}/{settings.get('db') or 0}")


def _require_valid(url: str, kind: str) -> None:
    """Raise ``InvalidUrl`` for a URL that redis-py would accept, or refuse with a message that quotes a password.

    ``kind`` is "", "cluster" or "sentinel".
    """
    if url.partition("://")[0] not in SCHEMES:
        if url.partition(":")[0] in SCHEMES:
            raise InvalidUrl("two slashes follow the colon of its scheme")
        raise InvalidUrl(f"the scheme must be one of {', '.join(SCHEMES)}")
    if url != url.rstrip():  # such as a line read from a file, which ``urlsplit`` would accept
        raise InvalidUrl("there is a space or a line break at its end")
    parts = urlsplit(url)
    if parts.fragment:
        raise InvalidUrl(f'there is a "#": {_QUOTED}')
    hint = f": {_QUOTED}" if "@" in parts.path + parts.query else ""  # the text before it may be a password
    if url.startswith("unix:"):
        if parts.netloc.rpartition("@")[2] or not parts.path.strip("/"):
            raise InvalidUrl(f'it names no socket, which begins with a third slash, "unix:///run/redis.sock"{hint}')
    else:
        _require_hosts(parts.netloc, kind, hint)
        service, _, database = unquote(parts.path).strip("/").rpartition("/")
        if kind == "sentinel":
            service, _, database = unquote(parts.path).strip("/").partition("/")
            if not service:
                raise InvalidUrl("the path must name the service that the sentinels watch")
        if database and not (database.isascii() and database.isdecimal()):
            raise InvalidUrl(f"the database is not a number{hint}")
    if parts.query and not all("=" in option for option in parts.query.split("&")):
        raise InvalidUrl(f"an option has no value{hint}")
    objects = sorted(filter(_OBJECTS.fullmatch, parse_qs(parts.query)))
    if objects:
        raise InvalidUrl(
            f"the option {objects[0]!r} needs an object: give a client, RedisStore(redis.asyncio.Redis(...))"
        )


def _require_hosts(netloc: str, kind: str, hint: str) -> None:
    _, at, hosts = netloc.rpartition("@")
    if "," in hosts and not kind:
        raise InvalidUrl("several hosts need redis+cluster:// or redis+sentinel://")
    for text in hosts.split(","):
        match = _HOST.fullmatch(text)
        if match is None:
            raise InvalidUrl(f"a host is not valid: {_QUOTED}")
        if not match[1] and (kind or at or match[2] is not None):
            raise InvalidUrl(f"a host is missing{hint}")
        port = match[2]
        if port is not None and not (port.isascii() and port.isdecimal() and 0 < int(port[:6]) < 65_536):
            quoted = f": {_QUOTED}" if at else hint
            raise InvalidUrl(f"a port is not a number from 1 to 65535{quoted}")


def _reason_of(error: Exception, url: str) -> str:
    """The message of an error, unless it quotes a part of the URL that must not be shown."""
    if isinstance(error, InvalidUrl):
        return str(error)
    message, visible = " ".join(str(error).split()), shown(url)
    hidden = [part for part in re.split(r"[:/?#@&=,]+", url) if part and part not in visible]
    if any(part in message or unquote(part) in message for part in hidden):
        return f"it cannot be read: {_QUOTED}"
    unknown = _UNKNOWN_OPTION.search(message)
    if unknown is not None:
        return (
            f"the option {unknown[1]!r} is not known, but db, username, password, protocol, client_name, "
            "health_check_interval, socket_keepalive, and ssl_... with rediss:// are; the time-out of a call is "
            'RedisStore("redis://localhost", timeout=0.25)'
        )
    return message.rstrip(".")
