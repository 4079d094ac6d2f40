"""Checks of a URL of a Redis, whose errors do not contain its password."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from ...urls import SCHEMES, shown

_HOST = re.compile(r"(\[[^\]]*\]|[^:\[\]]*)(?::(.*))?", re.DOTALL)

_OBJECTS = frozenset(
    {
        "command_packer",
        "connection_class",
        "credential_provider",
        "driver_info",
        "event_dispatcher",
        "maint_notifications_config",
        "oss_cluster_maint_notifications_handler",
        "parser_class",
        "redis_connect_func",
        "retry",
        "retry_on_error",
    }
)
"""Options of redis-py whose values are objects."""


_UNKNOWN_OPTION = re.compile(r"unexpected keyword argument '(\w+)'")
_OPTIONS = (
    "but db, username, password, protocol, client_name, health_check_interval, socket_keepalive, and ssl_... with "
    'rediss:// are; the time-out of a call is RedisStore("redis://localhost", timeout=0.25)'
)


class InvalidUrl(ValueError):
    """Raised for an invalid URL, with a reason that quotes nothing from it but names of options."""


def require_valid(url: str, kind: str) -> None:
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
        _require_socket(parts, hint)
    else:
        _require_hosts(parts, kind, hint)
        _require_path(unquote(parts.path).strip("/"), kind, hint)
    if parts.query and not all("=" in option for option in parts.query.split("&")):
        raise InvalidUrl(f"an option has no value{hint}")
    objects = sorted(_OBJECTS & set(parse_qs(parts.query)))
    if objects:
        raise InvalidUrl(
            f"the option {objects[0]!r} needs an object: give a client, RedisStore(redis.asyncio.Redis(...))"
        )


def reason_of(error: Exception, url: str) -> str:
    """The message of an error, unless it quotes a part of the URL that must not be shown."""
    if isinstance(error, InvalidUrl):
        return str(error)
    message = " ".join(str(error).split())
    visible = shown(url)
    hidden = [part for part in re.split(r"[:/?#@&=,]+", url) if part and part not in visible]
    if any(part in message or unquote(part) in message for part in hidden):
        return f"it cannot be read: {_QUOTED}"
    unknown = _UNKNOWN_OPTION.search(message)
    if unknown is not None:
        return f"the option {unknown[1]!r} is not known, {_OPTIONS}"
    return message.rstrip(".")


_QUOTED = 'a "/", "?", "#", "@" or ":" in a password is written as urllib.parse.quote(password, safe="") writes it'


def _require_socket(parts: SplitResult, hint: str) -> None:
    if parts.netloc.rpartition("@")[2] or not parts.path.strip("/"):
        raise InvalidUrl(f'it names no socket, which begins with a third slash, "unix:///run/redis.sock"{hint}')


def _require_hosts(parts: SplitResult, kind: str, hint: str) -> None:
    _, at, hosts = parts.netloc.rpartition("@")
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


def _require_path(path: str, kind: str, hint: str) -> None:
    service, _, database = path.partition("/") if kind == "sentinel" else ("-", "", path)
    if not service:
        raise InvalidUrl("the path must name the service that the sentinels watch")
    if database and not (database.isascii() and database.isdecimal()):
        raise InvalidUrl(f"the database is not a number{hint}")
