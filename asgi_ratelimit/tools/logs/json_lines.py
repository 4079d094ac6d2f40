"""Logs of JSON with one object in each line, whatever the names of the fields.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any, TypeAlias

from ...errors import ConfigurationError
from ...quotas import SECOND_US
from .requests import EVERYBODY, LoggedRequest, ParseLine, path_of
from .times import time_us_of

EXAMPLE = '{"time": "2026-10-10T13:55:36.25Z", "client": "203.0.113.7", "method": "GET", "path": "/login"}'

NAMES = {
    "time": ("time", "timestamp", "@timestamp", "ts", "msec", "time_iso8601", "time_local", "StartUTC", "date"),
    "client": ("client", "client_ip", "remote_addr", "client_addr", "ClientHost", "request.remote_ip", "ip", "key"),
    "method": ("method", "request_method", "http_method", "RequestMethod", "request.method"),
    "duration": ("request_time", "duration"),
    "path": ("path", "uri", "request_uri", "url", "RequestPath", "request.uri", "http.url"),
}
"""The fields of a request, and their common names; a dot leads into an object."""

_ENDS = {"msec": "request_time", "ts": "duration"}
"""The times that nginx and Caddy log are those of the answers; these fields hold how long the request took, in
seconds."""

Fields: TypeAlias = Mapping[str, str]
"""The names of fields that are not in ``NAMES``."""


def fields_of(texts: Sequence[str]) -> dict[str, str]:
    """The fields of texts such as ``"client=remote"``. Raises ``ConfigurationError`` for any other text."""
    fields = {}
    for text in texts:
        field, _, name = text.partition("=")
        if field not in NAMES or not name:
            raise ConfigurationError(f"--field must be one of {', '.join(NAMES)} and a name, not {text!r}: time=ts")
        fields[field] = name
    return fields


def json_parser(first: Sequence[str], key: str, fields: Fields) -> ParseLine:
    """The parser of such lines; it finds the fields in the ``first`` lines, as far as these are objects.

    ``key`` is ``client``, ``all``, or ``field:`` and a name. Raises ``ConfigurationError`` for any other key, and for a
    field that is missing in them.
    """
    entries = [json.loads(line) for line in first if is_object(line)]
    name_of = _names(entries, fields)
    if key.startswith("field:"):
        name_of["client"] = key.removeprefix("field:")
    elif key not in ("client", "all"):
        raise ConfigurationError(
            f"--key must be client, all or field:NAME for a log of JSON, not {key!r}: --key field:user_id"
        )
    wanted = ["time", "path", *([] if key == "all" else ["client"])]
    missing = next((field for field in wanted if field not in name_of), None)
    if missing is not None:
        names = ", ".join(dict.fromkeys(chain.from_iterable(entries)))
        raise ConfigurationError(f"the log has no field for the {missing}, but {names}: --field {missing}=NAME")
    return _parser({field: getter(name) for field, name in name_of.items()}, key == "all")


def _parser(get: Mapping[str, Callable[[Any], Any]], is_for_all: bool) -> ParseLine:
    method_of: Callable[[Any], Any] = get.get("method", _get)
    time_of, path_in, duration_of = get["time"], get["path"], get.get("duration")
    key_of: Callable[[Any], Any] = _everybody if is_for_all else get["client"]
    decode = json.JSONDecoder().decode

    def parse(line: str) -> LoggedRequest | None:
        try:
            entry = decode(line)
            time_us = time_us_of(time_of(entry))
            if duration_of is not None:
                time_us -= round(float(duration_of(entry)) * SECOND_US)
            return time_us, _key(key_of, entry), method_of(entry), path_of(path_in(entry))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None

    return parse


def _get(entry: Any) -> str:
    """The method if a log has none."""
    return "GET"


def _everybody(entry: Any) -> str:
    return EVERYBODY


def _key(key_of: Callable[[Any], Any], entry: Any) -> str:
    """The key of an entry; empty if it has none, as in a request without a user."""
    try:
        key = key_of(entry)
    except (KeyError, TypeError):
        return ""
    return "" if key is None else str(key)


def getter(name: str) -> Callable[[Any], Any]:
    """A function that reads a field of an object, or, following the dots in its name, of an object within it."""
    first, *others = name.split(".")
    if not others:
        return itemgetter(name)

    def get(entry: Any) -> Any:
        if name in entry:
            return entry[name]
        for each in (first, *others):
            entry = entry[each]
        return entry

    return get


def _names(entries: Sequence[Any], fields: Fields) -> dict[str, str]:
    """The name of each field that one of the objects has."""
    name_of = dict(fields)
    for field, name in fields.items():
        if not any(_has(entry, name) for entry in entries):
            others = ", ".join(dict.fromkeys(chain.from_iterable(entries)))
            raise ConfigurationError(f"the log has no field {name!r}, but {others}: --field {field}=NAME")
    for field, names in NAMES.items():
        present = next((name for name in names if any(_has(entry, name) for entry in entries)), None)
        if present is not None:
            name_of.setdefault(field, present)
    if "duration" not in fields and _ENDS.get(name_of.get("time", "")) != name_of.get("duration"):
        name_of.pop("duration", None)
    return name_of


def _has(entry: Any, name: str) -> bool:
    try:
        return getter(name)(entry) is not None
    except (KeyError, TypeError):
        return False


def is_object(line: str) -> bool:
    """Whether a line is an object of JSON."""
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False
