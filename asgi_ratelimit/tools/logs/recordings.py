"""Recordings: what a hook or ``asgi-ratelimit record`` writes, one JSON object in each line.

The first line of a file tells what it is and with which salt its keys are hashed. Each other line is a request, with
its method and path, or a decision, with the rule that made it.
No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import json
from typing import Any

from ...errors import ConfigurationError
from ...quotas import SECOND_US
from .requests import EVERYBODY, LoggedRequest, ParseLine

VERSION = 1
MARK = "asgi_ratelimit_recording"
"""The field of a first line that tells its version."""

_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


def first_line(salt: str) -> str:
    """The first line of a recording; ``salt`` tells which salt its keys are hashed with, and is empty if none is."""
    return _encode({MARK: VERSION, "salt": salt})


def request_line(time_us: float, key: str, method: str, path: str, status: int) -> str:
    """The line of a request."""
    return _encode({"time": time_us / SECOND_US, "key": key, "method": method, "path": path, "status": status})


def decision_line(time_us: float, key: str, rule: str, cost: float, outcome: str) -> str:
    """The line of a decision; the outcome is ``allowed``, ``refused`` or, of a shadow rule, ``shadow``."""
    return _encode({"time": time_us / SECOND_US, "key": key, "rule": rule, "cost": cost, "outcome": outcome})


def salt_of(line: str) -> str | None:
    """The salt that the first line of a recording tells; ``None`` where it is no such line.

    Raises ``ConfigurationError`` for one of a version that this one cannot read.
    """
    entry = _entry(line)
    if MARK not in entry:
        return None
    if entry[MARK] != VERSION:
        raise ConfigurationError(
            f"the recording is of version {entry[MARK]!r}, and this program reads version {VERSION}: "
            "pip install --upgrade asgi-ratelimit-pacer"
        )
    return str(entry.get("salt", ""))


def recording_parser(key: str) -> ParseLine:
    """The parser of the lines of a recording, under the recorded keys or one key for all.

    Raises ``ConfigurationError`` for any other key.
    """
    if key not in ("client", "all"):
        raise ConfigurationError(f"--key must be client or all for a recording, not {key!r}: --key all")
    is_for_all = key == "all"

    def parse(line: str) -> LoggedRequest | None:
        entry = _entry(line)
        try:
            time_us, own = float(round(entry["time"] * SECOND_US)), EVERYBODY if is_for_all else entry["key"]
            if "rule" in entry:
                return time_us, own, "", entry["rule"], entry["cost"]
            return time_us, own, entry["method"], entry["path"], 1
        except (KeyError, TypeError):
            return None

    return parse


def _entry(line: str) -> Any:
    try:
        entry = json.loads(line)
    except ValueError:
        return {}
    return entry if isinstance(entry, dict) else {}
