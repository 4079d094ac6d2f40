"""The boundary to redis-py: what a URL or a client stands for, the client of an event loop, single commands, errors.

A client is opened at its first use, and a new one after a failure.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import re
import socket
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from random import sample
from typing import Any, TypeAlias
from urllib.parse import unquote

import redis
from redis import exceptions
from redis.asyncio import ConnectionPool, Redis, RedisCluster, Sentinel, SentinelConnectionPool, SSLConnection
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.credentials import UsernamePasswordCredentialProvider

from ...background import ByLoop, keep, see_all_through, unharmed
from ...errors import ConfigurationError, StoreError, StoreTimeout, StoreUnavailable
from .batching import GroupCommit

RedisLike: TypeAlias = str | Redis | RedisCluster

Kind: TypeAlias = type | tuple[type, ...]

# The words of a command, what its answer is, and the node of a cluster, unless that depends on the command's key.
Command: TypeAlias = tuple[tuple[str | bytes | int, ...], Kind, Any]

# After so many seconds, connections to a cluster are opened anew: redis-py does not see that the server has closed one.
LONGEST_IDLE_S = 5.0

# The most seconds for which closing waits for Redis.
CLOSE_WITHIN = 2.0

_UNKNOWN_OPTION = re.compile(r"unexpected keyword argument '(\w+)'")

_HOST = r"(?:[\w.-]+|\[[\w.:%]*\])(?::[1-9]\d{0,4})?"
# A URL whose parts are certain, so that none of them is a piece of a password.
URL_OF_REDIS = re.compile(
    rf"(?P<scheme>rediss?|unix)(?:\+(?P<kind>cluster|sentinel))?://(?P<credentials>[^/?#]*@)?"
    rf"(?P<hosts>(?:{_HOST}(?:,{_HOST})*)?)(?P<path>(?:/[^?#@]*)?)(?P<options>(?:\?[^#@]*)?)"
)

_EXAMPLES = (
    '"memory://", "redis://localhost:6379/0", "rediss://user:password@host:6380/0", "unix:///run/redis.sock", '
    '"redis+cluster://host1:6379,host2:6379" or "redis+sentinel://host1:26379,host2:26379/mymaster"'
)

_QUOTED = '; a "/", "?", "#", "@" or ":" in a password is written as urllib.parse.quote(password, safe="") writes it'

# Made once, because redis-py reads the files of its package to make one for each connection, which takes a millisecond;
# versions before 7 do not.
_DRIVER = {"driver_info": redis.DriverInfo()} if hasattr(redis, "DriverInfo") else {}

# What a cluster's client takes: redis-py 5 and 8 differ in how retries are switched off.
_OF_CLUSTERS = inspect.signature(RedisCluster.__init__).parameters


def shown(url: str) -> str:
    """A URL as errors quote it: the user, the password, the options, and all that may be a part of them are hidden."""
    found = URL_OF_REDIS.fullmatch(url)
    if found is None:
        beginning = re.match(r"\s*[a-z][a-z0-9+.-]*://", url, re.IGNORECASE)
        return repr(url if not re.search("[:@?]", url) else f"{beginning[0] if beginning else ''}***")
    scheme, _, hidden = url.partition("://")
    kept = hidden.removeprefix(found["credentials"] or "").removesuffix(found["options"])
    credentials, options = "***@" if found["credentials"] else "", "?***" if found["options"] else ""
    return repr(f"{scheme}://{credentials}{kept}{options}")


@dataclass(frozen=True, slots=True)
class Server:
    """What a URL or a client stands for: a single Redis, a ``"cluster"``, or the ``service`` of a ``"sentinel"``.

    The log calls it ``name``, a URL without its password. ``settings`` are those of its connections, and
    ``of_sentinels`` those of connections to sentinels. Connecting takes at most ``timeout`` seconds.
    """

    name: str
    kind: str
    connection: type[Any]
    settings: dict[str, Any] = field(repr=False)  # they have the password
    addresses: Sequence[tuple[str, int]]
    timeout: float
    service: str = ""
    of_sentinels: dict[str, Any] = field(repr=False, default_factory=dict)

    def client(self) -> Any:
        """A new client, which connects at its first call; it never retries, which could charge twice.

        Of several sentinels, each client begins with others: there is time for two that do not answer, not for three.
        """
        timeout, never = self.timeout, {"retry": Retry(NoBackoff(), 0), "decode_responses": False}
        # Under RESP3, redis-py does not see that a connection was closed
        never |= {"encoding": "utf-8", "encoding_errors": "strict", "protocol": 2, **_DRIVER}
        settings = {name: value for name, value in self.settings.items() if not name.startswith("maint_")}
        settings |= never | {"socket_timeout": None, "socket_connect_timeout": timeout}
        if not self.kind:
            return Redis.from_pool(ConnectionPool(connection_class=self.connection, **settings))
        settings = {name: value for name, value in settings.items() if name not in ("path", "host", "port")}
        settings["ssl"] = issubclass(self.connection, SSLConnection)
        if self.kind == "sentinel":
            half = {"socket_timeout": timeout / 2, "socket_connect_timeout": timeout / 2}
            addresses, sentinels = sample(self.addresses, len(self.addresses)), self.of_sentinels | never | half
            if password := sentinels.pop("password", None):  # the errors of redis-py 6.4 to 7.3 show settings
                provider = UsernamePasswordCredentialProvider(sentinels.pop("username", None), password)
                sentinels["credential_provider"] = provider
            manager = Sentinel(addresses, sentinel_kwargs=sentinels)  # type: ignore[no-untyped-call]
            return manager.master_for(self.service, **settings)
        settings = {name: value for name, value in settings.items() if name in _OF_CLUSTERS and name != "db"}
        # A node that does not answer must not keep the others from it; takes have their own deadline
        settings["socket_timeout"] = 4 * timeout
        settings["max_connections"] = 2**31  # calls above a bound fail, and redis-py 8 has one of 100
        if "connection_error_retry_attempts" in _OF_CLUSTERS:  # redis-py 5
            del settings["retry"]
            settings |= {"cluster_error_retry_attempts": 0, "connection_error_retry_attempts": 0}
        return RedisCluster(startup_nodes=[ClusterNode(host, port) for host, port in self.addresses], **settings)


def server_of(url_or_client: RedisLike, timeout: float) -> Server:
    """The server of a URL or a client. Connecting takes at most ``timeout`` seconds.

    Raises ``ConfigurationError``, which hides the password, for anything that is neither a URL of a Redis nor a client.
    """
    if not isinstance(url_or_client, str):
        return _of_client(url_or_client, timeout)
    try:
        server = _of_url(url_or_client, timeout)
        server.connection(**server.settings)  # both raise if they do not understand an option
        server.client()
        return server
    except Exception as error:  # noqa: BLE001  # redis-py raises many kinds, and may quote the password
        unknown = _UNKNOWN_OPTION.search(str(error))
    problem = f", it has the unknown option {unknown[1]!r}" if unknown else ""
    right = _EXAMPLES + (_QUOTED if "@" in url_or_client else "")
    raise ConfigurationError(f"{shown(url_or_client)} is not the URL of a store{problem}: {right}")


def _of_url(url: str, timeout: float) -> Server:
    """The server of a URL; ``ValueError`` for a part that redis-py would ignore, such as a database of no number."""
    found = URL_OF_REDIS.fullmatch(url)
    scheme, kind, credentials, hosts, path, options = [each or "" for each in found.groups()] if found else [""] * 6
    service, database = "", path.removeprefix("/")
    if kind == "sentinel":
        service, _, database = unquote(database).partition("/")
    if scheme == "unix":
        is_right = path != "" and hosts + kind == ""
    else:
        is_right = re.fullmatch("[0-9]*", database) is not None and bool(service) == (kind == "sentinel")
        is_right = is_right and (hosts != "" if kind else "," not in hosts and (hosts != "" or credentials == ""))
    if found is None or not is_right:
        raise ValueError(url)
    urls = [f"{scheme}://{credentials}{host}/{database}{options}" for host in hosts.split(",")]
    pools = [ConnectionPool.from_url(each, protocol=2) for each in urls]
    own = pools[0].connection_kwargs
    if kind == "cluster" and own.get("db"):
        raise ValueError("a cluster has only database 0")
    of_sentinels = {name: own.pop(name) for name in list(own) if kind and name.startswith("sentinel_")}
    for_both = {name: value for name, value in own.items() if name.startswith("ssl")} | {"ssl": scheme == "rediss"}
    for_both |= {name.removeprefix("sentinel_"): value for name, value in of_sentinels.items()}
    addresses = [_address(pool, 26379 if kind == "sentinel" else 6379) for pool in pools]
    name = shown(url) + (f" db={own['db']}" if str(own.get("db") or database) != database else "")  # an option
    return Server(name, kind, pools[0].connection_class, own, addresses, timeout, service, for_both)


def _of_client(client: Any, timeout: float) -> Server:
    pool, kind, service, of_sentinels = getattr(client, "connection_pool", None), "", "", {}
    if isinstance(client, RedisCluster):
        kind, manager = "cluster", client.nodes_manager
        settings = {**client.connection_kwargs, "address_remap": manager.address_remap}
        connection = settings.get("connection_class", object)
        addresses = [(node.host, int(node.port)) for node in manager.startup_nodes.values()]
    elif isinstance(pool, ConnectionPool):
        settings, connection, addresses = pool.connection_kwargs, pool.connection_class, [_address(pool, 6379)]
    else:
        what = "a URL, a redis.asyncio.Redis or a redis.asyncio.RedisCluster"
        kind = f"a {type(client).__module__}.{type(client).__qualname__}"  # not itself, which may have a password
        raise ConfigurationError(f'a Redis store needs {what}, not {kind}: RedisStore("redis://localhost")')
    if isinstance(pool, SentinelConnectionPool):
        kind, service, of_sentinels = "sentinel", pool.service_name, pool.sentinel_manager.sentinel_kwargs
        settings = {name: value for name, value in settings.items() if name != "connection_pool"}
        addresses = [_address(each.connection_pool, 26379) for each in pool.sentinel_manager.sentinels]
    name = settings.get("path") or ",".join([f"{host}:{port}" for host, port in addresses])
    name += f"/{settings['db']}" if settings.get("db") else ""
    return Server(name, kind, connection, settings, addresses, timeout, service, of_sentinels)


def _address(pool: Any, port: int) -> tuple[str, int]:
    settings = pool.connection_kwargs
    return settings.get("host", "localhost"), int(settings.get("port", port))


class Connection:
    """The client of one event loop, for one server or for all nodes of a cluster."""

    def __init__(self, server: Server) -> None:
        self._server, self.is_cluster = server, server.kind == "cluster"
        # The client, once it is open.
        self.client: Any = None
        self._opening: asyncio.Task[Any] | None = None
        self._lookup: concurrent.futures.Future[None] | None = None

    async def open(self) -> Any:
        """Open the client. A caller that gives up does not end that: the next one may find it done."""
        if self._opening is None or self._opening.done():
            self._opening = keep(self, asyncio.ensure_future(self._open()))
        return await unharmed(self._opening)

    async def _open(self) -> Any:
        if "path" not in self._server.settings:
            await self._look_up()
        client = self._server.client()
        if self.is_cluster:
            await client.initialize()
        if self.client is not None:  # an opening that began later was faster
            keep(self, asyncio.ensure_future(_close(client)))
            return self.client
        self.client = client
        return client

    async def _look_up(self) -> None:
        """Look up the names of the hosts, one lookup at a time. Raises ``OSError`` if no host has an address.

        It has a thread of its own: asyncio would do it in the executor that the app uses too, and a slow name server
        would hold its threads.
        """
        if self._lookup is None or self._lookup.done():
            lookup = concurrent.futures.Future[None]()
            lookup.set_running_or_notify_cancel()  # nobody who gives up ends it for the others
            names = [host for host, _ in self._server.addresses]
            threading.Thread(target=_look_up, args=(names, lookup), name="rate limit lookup", daemon=True).start()
            self._lookup = lookup
        await asyncio.wrap_future(self._lookup)

    def failed(self) -> None:
        """A call has failed: the next one opens another client.

        The other nodes of a cluster go on meanwhile, and it is asked in the background which slot is where.
        """
        if not self.is_cluster:
            self.drop()
        elif self.client is not None and (self._opening is None or self._opening.done()):
            self._opening = keep(self, asyncio.ensure_future(self.client.nodes_manager.initialize()))

    def drop(self) -> None:
        """Close the client in the background, as late answers may follow; the next call opens another one at once."""
        client, self.client, self._opening = self.client, None, None
        if client is not None:
            keep(self, asyncio.ensure_future(_close(client)))

    async def aclose(self) -> None:
        """Close the client after its answers; a server that does not answer keeps nobody waiting."""
        await see_all_through(self)
        self.drop()
        await see_all_through(self)


def _look_up(names: Sequence[str], result: concurrent.futures.Future[None]) -> None:
    for name in names:
        try:
            socket.getaddrinfo(name, None)
            return result.set_result(None)
        except (OSError, UnicodeError) as error:
            failure = OSError(f"{name}: {error}")
    return result.set_exception(failure)


async def _close(client: Any) -> None:
    """Close a client, and what redis-py leaves open: a cluster's nodes after a failure, and clients to sentinels."""
    await client.aclose()
    if isinstance(client, RedisCluster):
        await asyncio.gather(*map(client.nodes_manager.aclose, ("nodes_cache", "startup_nodes")))
    elif isinstance(client.connection_pool, SentinelConnectionPool):
        for sentinel in client.connection_pool.sentinel_manager.sentinels:
            await sentinel.aclose()


class Commands(GroupCommit[Command, Any]):
    """Single commands to a server on one event loop, one after the other, because redis-py has a connection for each.

    Each is answered within ``timeout`` seconds of its call. A caller that is cancelled does not end its command.
    """

    def __init__(self, server: Server, timeout: float, prefix: str) -> None:
        super().__init__(timeout, most_weight=1)
        self.connection, self._used_at = Connection(server), 0.0
        self._prefix = prefix

    async def __call__(self, *words: str | bytes | int, kind: Kind = object, node: Any = None) -> Any:
        """The answer to a command. Raises ``StoreError``, also if it is not of this kind."""
        return await unharmed(keep(self, self.submit((words, kind, node))))

    async def aclose(self) -> None:
        """Close the client after its answers."""
        await self.drain()
        await self.connection.aclose()

    async def send(self, items: list[Command]) -> Sequence[Any]:
        """The answer to one command."""
        ((words, kind, node),) = items
        since, self._used_at = self._used_at, self._loop.time()
        if self.connection.is_cluster and node is None and self._used_at > since + LONGEST_IDLE_S:
            self.connection.drop()
        try:
            client = node or self.connection.client or await self.connection.open()
            answer = await client.execute_command(*words)
            if not isinstance(answer, kind):
                raise StoreUnavailable(f"Redis answered {answer!r:.100}, which makes no sense")
            return [answer]
        except Exception as error:
            self.connection.drop()
            raise store_error_of(error, self._timeout, self._prefix) from error

    def timed_out(self) -> Exception:
        """The command has had no answer."""
        self.connection.drop()
        return timed_out(self._timeout)


class CommandsByLoop(ByLoop[Commands]):
    """Single commands, on any event loop; each has a connection of its own."""

    def __init__(self, server: Server, timeout: float, prefix: str) -> None:
        super().__init__()
        self._begin = partial(Commands, server, timeout, prefix)

    async def __call__(self, *words: str | bytes | int, kind: Kind = object) -> Any:
        """The answer to a command. Raises ``StoreError``."""
        return await self.of_running(self._begin)(*words, kind=kind)


# The error code, first in the text or inside a script error, of a Redis that runs but cannot serve.
_OUT_OF_SERVICE = re.compile(r"(?:^|-)(?:BUSY|LOADING|MASTERDOWN|CLUSTERDOWN|MISCONF|NOREPLICAS|OOM|READONLY)\b")

# The errors that do not go away by themselves: how their texts are found, and what to do.
_ADVICE = (
    (r"WRONGPASS|Authentication required|invalid username", "redis://user:password@host, or redis://:password@host"),
    (r"cluster support disabled|Cluster mode is not|command .?SENTINEL", "it is a single Redis, redis://host:6379/0"),
    (r"^MOVED|not allowed in cluster mode", "it is a node of a cluster, redis+cluster://host:6379"),
    (r"unknown command .?EVALSHA", "if it is a sentinel, redis+sentinel://host:26379/mymaster"),
    (r"CERTIFICATE_VERIFY_FAILED", "the URL may name whom to trust, rediss://host:6379/0?ssl_ca_certs=ca.pem"),
    (r"SSL|reset by peer|closed by server", "if it never answers: rediss://host:6379/0 is TLS, redis:// plain"),
    (r"\baccess .*\bkeys?\b", "the user needs the keys of this store, ACL SETUSER <user> ~{prefix}:*"),
)


def store_error_of(error: BaseException, timeout: float, prefix: str = "") -> StoreError:
    """The ``StoreError`` for an error of redis-py. ``timeout`` is the deadline of the call in seconds.

    ``prefix`` is the escaped prefix of the keys.
    """
    if isinstance(error, StoreError):
        return error
    if isinstance(error, (TimeoutError, exceptions.TimeoutError)):
        return timed_out(timeout)
    text = f"MOVED {error}" if isinstance(error, exceptions.MovedError) else str(error)
    advice = next((f": {advice}" for pattern, advice in _ADVICE if re.search(pattern, text)), "")
    text = text.rstrip("., \r\n") + advice.replace("{prefix}", prefix)
    if isinstance(error, exceptions.AuthenticationError):
        return StoreError(f"Redis rejected the credentials: {text}")
    if isinstance(error, (exceptions.ConnectionError, exceptions.RedisClusterException, OSError)):
        return StoreUnavailable(f"Redis cannot be reached: {text}")
    if not isinstance(error, exceptions.RedisError):
        return StoreUnavailable(f"Redis answered what redis-py cannot read: {error!r:.200}")
    is_out = (exceptions.OutOfMemoryError, exceptions.ReadOnlyError, exceptions.ClusterDownError)
    if isinstance(error, is_out) or _OUT_OF_SERVICE.search(text):
        return StoreUnavailable(f"Redis cannot serve: {text}")
    return StoreError(f"Redis answered with an error: {text}")


def timed_out(timeout: float) -> StoreTimeout:
    """The error for a call without an answer."""
    return StoreTimeout(f"Redis did not answer within {timeout} s")
