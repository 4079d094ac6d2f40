"""The formats of lines: each line is read as a request, or refused with the reason. Nothing is guessed.

A word in front of the client is read where the format names it, as Apache's virtual host, and is an error elsewhere.
No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import Any, TypeAlias
from urllib.parse import unquote

from ..errors import ConfigurationError
from ..keys.addresses import client_key, parse_address

# The time in whole microseconds, the key (whose request it is; empty if nobody's), the method, and the path without
# its query: a tuple, because there may be millions.
LoggedRequest: TypeAlias = tuple[float, str, str, str]

# The request of a line. Raises one of ``UNREADABLE`` with the reason.
ParseLine: TypeAlias = Callable[[str], LoggedRequest]

UNREADABLE = (ValueError, OverflowError, RecursionError)

EXAMPLE = '203.0.113.7 - - [10/Oct/2026:13:55:36 +0000] "GET /login HTTP/1.1" 200 512'
JSON_EXAMPLE = '{"time": "2026-10-10T13:55:36.25Z", "client": "203.0.113.7", "method": "GET", "path": "/login"}'

# The key of all requests if one bucket is for all clients.
EVERYBODY = "everybody"

# Bits of an IPv6 address that count, as in ``client_ip()``.
IPV6_PREFIX = 64

# The most characters of what is kept of a request; a line with more is unreadable, so that memory is bounded.
LONGEST_KEY, LONGEST_PATH, LONGEST_METHOD = 256, 2048, 20

CACHED = 10_000


# What stands in the lines of all formats


_address_in = lru_cache(maxsize=CACHED)(parse_address)


@lru_cache(maxsize=CACHED)
def client_of(text: str) -> str:
    """The key of a client: its address without the port, of IPv6 its network; any other text as it is."""
    packed = _address_in(text)
    return text if packed is None else client_key(packed, IPV6_PREFIX)


def _key_of(value: object) -> str:
    """A value of a log as a key; empty if there is none. Raises ``ValueError``."""
    if value is None or value == "-":
        return ""
    if isinstance(value, bool) or not isinstance(value, (str, int)) or len(str(value)) > LONGEST_KEY:
        raise ValueError(f"and a key is a text or a whole number of at most {LONGEST_KEY} characters")
    return str(value)


def path_of(target: str) -> str:
    """The path of the target of a request, as an ASGI app sees it: decoded, and without host and query."""
    path = target.partition("?")[0]
    if path[:1] != "/" and "://" in path:
        path = "/" + path.partition("://")[2].partition("/")[2]
    if len(path) > LONGEST_PATH or (path[:1] != "/" and path != "*"):
        raise ValueError(f"which is not a path with a slash in front, of at most {LONGEST_PATH} characters")
    return _unquoted(path)


_unquoted = lru_cache(maxsize=CACHED)(unquote)

_COMMON_TIME = re.compile(r"(\d\d)/(\w{3})/(\d{4}):(\d\d:\d\d:\d\d(?:\.\d{1,9})?) ([+-]\d{4})", re.ASCII)
_NUMBER = re.compile(r"\d+(\.\d*)?", re.ASCII)
# The names of the months, in every locale.
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

# The years 2000 and 2200. Between them, the size of a number shows what it counts since the epoch.
_EARLIEST_US, _LATEST_US = 946_684_800e6, 7_258_118_400e6


def time_us_of(value: object) -> float:
    """The time of a value: ISO 8601 (UTC unless it says otherwise), that of access logs, or a number since the epoch.

    The number counts seconds, milliseconds, microseconds or nanoseconds. Raises ``ValueError`` for anything else.
    """
    if isinstance(value, str):
        text = value.strip("[]")
        if not _NUMBER.fullmatch(text):
            return _text_time_us(text)
        value = float(text)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        for factor in (1e6, 1e3, 1.0, 1e-3):
            if _EARLIEST_US <= float(value) * factor < _LATEST_US:
                return round(value * factor)
    raise ValueError("which is not a time")


@lru_cache(maxsize=CACHED)
def _text_time_us(text: str) -> float:
    common = _COMMON_TIME.fullmatch(text)
    if common:
        day, month, year, time, zone = common.groups()
        text = f"{year}-{_MONTHS.index(month) + 1:02}-{day}T{time}{zone}"
    if len(text) < len("20261010T135536"):  # only a date, or only a time of day
        raise ValueError("which is not a date and a time")
    time = datetime.fromisoformat(text.replace(" +", "+").replace(" -", "-"))
    time_us = round((time.replace(tzinfo=UTC) if time.tzinfo is None else time).timestamp() * 1e6)
    if not _EARLIEST_US <= time_us < _LATEST_US:
        raise ValueError("which is not a time between 2000 and 2200")
    return time_us


# Lines of text

# The client, the user (``-`` for none), the time, the method and the target.
TextFields: TypeAlias = tuple[str, str, str, str, str]

# The possible keys of a request in a line of text.
KEYS = ("client", "user", "all")

# hypercorn writes its own time, its process and a level in front.
_COMMON = re.compile(
    r'(?:\[[^]]+] \[\d+] \[INFO] )?(\S.*?) \[([^\[\]]+)\] "([A-Za-z]{1,20}) (\S+?)(?: [^"\s]*)?"(?: |$)'
)
_HOST = re.compile(r"\w[\w.-]*(:\d+)?", re.ASCII)


def common_fields(line: str) -> TextFields:
    """A line in the common or combined format, also behind Apache's virtual host: ``[host] client ident user [time]``.

    Raises ``ValueError`` if anything else, or another address, stands in front of the time.
    """
    match = _COMMON.match(line)
    if match is None:
        raise ValueError("it is not a client, a time in brackets and a request line in quotes")
    front, time, method, target = match.groups()
    client, *others = front.split(" ")
    is_address = _address_in(client) is not None
    if others and not is_address and _HOST.fullmatch(client) and _address_in(others[0]) is not None:
        client, *others = others
        is_address = True
    if len(others) < 2 or any(_address_in(other) for other in others):
        raise ValueError(f"what stands before the time is not a client, '-' and a user, but {front[:100]!r}")
    if not is_address and (len(others) > 2 or others[0] != "-" or not (client == "-" or _HOST.fullmatch(client))):
        raise ValueError(f"it does not begin with the address or name of a client, but {front[:100]!r}")
    return client, " ".join(others[1:]), time, method, target


# A line of uvicorn behind a time, of ``docker logs -t`` or of a format with ``%(asctime)s``.
_UVICORN = re.compile(
    r"\[?(?P<time>\d{4}-\d\d-\d\d[T ][\d:.,]+(?: ?(?:Z|[+-]\d\d:?\d\d))?)\]?(?:\s[^\"]*)?\s"
    r'(?P<client>\S+):\d+ - "(?P<method>[A-Z]{1,20}) (?P<target>\S+) HTTP/[\d.]+" \d{3}'
)

# A line of an Application Load Balancer of AWS; the time is that at which the request came.
_ALB = re.compile(
    r'(?:https?|h2|grpcs|wss?) \S+ \S+ (?P<client>\S+):\d+ [^"]+ "(?P<method>[A-Z]{1,20}) (?P<target>\S+) \S+" ".*" '
    r'\S+ \S+ \S+ "[^"]*" "[^"]*" "[^"]*" -?\d+ (?P<time>\S+Z) "'
)


def _fields_by(pattern: re.Pattern[str], line: str) -> TextFields:
    """The fields of a line without a user. Raises ``ValueError``."""
    match = pattern.match(line)
    if match is None:
        raise ValueError("it is in another format than most of the first lines")
    return match["client"], "-", match["time"], match["method"], match["target"]


# The formats of lines of text.
FORMATS = (common_fields, partial(_fields_by, _UVICORN), partial(_fields_by, _ALB))


def text_parser(fields_of_line: Callable[[str], TextFields], key: str) -> ParseLine:
    """The parser of lines of a format. Raises ``ConfigurationError`` for a key that is not in ``KEYS``."""
    if key not in KEYS:
        raise ConfigurationError(f"--key must be client, user or all for an access log, not {key!r}: --key client")

    def parse(line: str) -> LoggedRequest:
        client, user, time, method, target = fields_of_line(line)
        if key == "client":
            own = client_of(_key_of(client))
        elif " " in user and key == "user":  # there may be another field between it and the time
            raise ValueError(f"the user is not one word, but {user[:100]!r}")
        else:
            own = EVERYBODY if key == "all" else _key_of(user.strip('"'))
        return time_us_of(time), own, method, path_of(target)

    return parse


# Lines of JSON

# The fields of a request, and their common names, the best one first; a dot leads into an object.
NAMES = {
    "time": "StartUTC StartLocal msec ts time timestamp @timestamp time_iso8601 time_local date",
    "client": "client client_ip remote_addr client_addr ClientHost request.client_ip request.remote_ip "
    "httpRequest.remoteIp ip key",
    "method": "method request_method http_method RequestMethod request.method httpRequest.requestMethod",
    "path": "path request_uri request request_line RequestPath request.uri httpRequest.requestUrl http.url url uri",
}

# The names of fields that are not in ``NAMES``.
Fields: TypeAlias = Mapping[str, str]

_REQUEST_LINE = re.compile(r"([A-Z]+) (\S+)( HTTP/[\d.]+)?", re.ASCII)


def fields_of(texts: Sequence[str]) -> dict[str, str]:
    """The fields of texts such as ``"client=remote"``. Raises ``ConfigurationError`` for any other text."""
    fields = {}
    for text in texts:
        field, _, name = text.partition("=")
        if field not in NAMES or not name:
            raise ConfigurationError(f"--field must be one of {', '.join(NAMES)} and a name, not {text!r}: time=ts")
        fields[field] = name
    return fields


def object_in(line: str) -> dict[str, Any]:
    """The object of JSON in a line. Raises one of ``UNREADABLE``."""
    entry = json.loads(line)
    if not isinstance(entry, dict):
        raise ValueError("it is not an object of JSON")
    return entry


def json_parser(entries: Sequence[dict[str, Any]], key: str, fields: Fields, *, needs_method: bool) -> ParseLine:
    """The parser of lines with one object each; ``entries`` are those of the first lines, in which fields are found.

    ``key`` is ``client``, ``all``, or ``field:`` and a name. With ``needs_method``, a line without a method is
    unreadable; else it is GET. Raises ``ConfigurationError`` for any other key.
    """
    name_of = _names(entries, fields)
    if key.startswith("field:"):
        name_of["client"] = key.removeprefix("field:")
    elif key not in ("client", "all"):
        raise ConfigurationError(f"--key must be client, all or field:NAME for JSON, not {key!r}: --key field:user_id")

    def parse(line: str) -> LoggedRequest:
        entry = object_in(line)

        def read(field: str, convert: Callable[[Any], Any]) -> Any:
            value = value_in(entry, name_of.get(field, ""))
            try:
                if field not in name_of:
                    raise ValueError("and no field is one for it")
                return convert(value)
            except UNREADABLE as error:
                shown = "missing" if value is None else repr(value)[:100]
                raise ValueError(f"its {field} is {shown}, {error}: --field {field}=NAME") from error

        method, path = read("path", _method_and_path)
        if (needs_method and not method) or value_in(entry, name_of.get("method", "")) is not None:
            method = read("method", _method)
        client = EVERYBODY if key == "all" else read("client", lambda value: client_of(_key_of(value)))
        return read("time", time_us_of), client, method or "GET", path

    return parse


def _method_and_path(value: object) -> tuple[str, str]:
    """The path of a field with a path; of one with the whole request line, the method as well."""
    if not isinstance(value, str):
        raise ValueError("which is not a text")
    line = _REQUEST_LINE.fullmatch(value)
    return (_method(line[1]), path_of(line[2])) if line else ("", path_of(value))


def _method(value: object) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_METHOD:
        raise ValueError("which is not a method; the rules are for some methods only")
    return value


def value_in(entry: Any, name: str) -> Any:
    """A field of an object, or, following the dots in its name, of an object within it; ``None`` if there is none."""
    if not isinstance(entry, dict):
        return None
    first, dot, rest = name.partition(".")
    return value_in(entry.get(first), rest) if dot and name not in entry else entry.get(name)


def _names(entries: Sequence[dict[str, Any]], fields: Fields) -> dict[str, str]:
    """The name of each field: the given one, or the first that one of the objects has."""
    name_of = dict(fields)
    for field, names in NAMES.items():
        for name in names.split():
            if any(isinstance(value_in(entry, name), (str, int, float)) for entry in entries):
                name_of.setdefault(field, name)
    return name_of
