"""Recordings: the output of a ``Recorder``, one JSON object in each line.

A first line says what the file is and with which salt its keys are hashed; each process that has written to the file
has written one. Each other line is a request, or the decision of a rule.
No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from ...errors import ConfigurationError
from ...quotas import SECOND_US
from .requests import EVERYBODY, SKIPPED, LoggedRequest, ParseLine, path_of

VERSION = 1
MARK = "asgi_ratelimit_recording"
"""The field of a first line that holds its version."""

_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


def first_line(salt: str) -> str:
    """The first line of a recording; ``salt`` identifies the salt of its hashed keys, and is empty without one."""
    return _encode({MARK: VERSION, "salt": salt})


def request_line(time_us: float, key: str, method: str, path: str) -> str:
    """The line of a request."""
    return _encode({"time": time_us / SECOND_US, "key": key, "method": method, "path": path})


def decision_line(
    time_us: float, key: str, rule: str, cost: float, result: str, method: str, path: str, *, is_first: bool
) -> str:
    """The line of a rule's decision; ``is_first`` says that it is the first line of its request."""
    entry = {"time": time_us / SECOND_US, "key": key, "rule": rule, "cost": cost, "result": result}
    if path:
        entry |= {"method": method, "path": path}
    return _encode(entry if is_first else {**entry, "again": True})


def salt_of(line: str) -> str | None:
    """The salt of a first line; ``None`` for any other line.

    Raises ``ConfigurationError`` for a version that this package cannot read.
    """
    if MARK not in line:
        return None
    entry = _entry(line)
    if MARK not in entry:
        return None
    if entry[MARK] != VERSION:
        raise ConfigurationError(
            f"the recording is of version {entry[MARK]!r}, and this program reads version {VERSION}: "
            "pip install --upgrade asgi-ratelimit-pacer"
        )
    return str(entry.get("salt", ""))


def recording_parser(key: str, *, by_rule: bool, add_salt: Callable[[str], None]) -> ParseLine:
    """The parser of the lines of a recording: each request once, or ``by_rule``, each decision of a rule.

    The key is the recorded one, or one key for all. Raises ``ConfigurationError`` for any other ``key``.
    """
    if key not in ("client", "all"):
        raise ConfigurationError(f"--key must be client or all for a recording, not {key!r}: --key all")
    is_for_all = key == "all"

    def parse(line: str) -> LoggedRequest | None:
        salt = salt_of(line)
        if salt is not None:
            add_salt(salt)
            return SKIPPED
        entry = _entry(line)
        try:
            time_us, own = float(round(entry["time"] * SECOND_US)), EVERYBODY if is_for_all else entry["key"]
            if by_rule or "path" not in entry:
                return (time_us, own, "", entry["rule"], entry["cost"]) if "rule" in entry else SKIPPED
            return SKIPPED if "again" in entry else (time_us, own, entry["method"], path_of(entry["path"]), 1)
        except (KeyError, TypeError, AttributeError):
            return None

    return parse


def _entry(line: str) -> Any:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return entry if isinstance(entry, dict) else {}
