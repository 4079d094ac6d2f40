"""Lines in the common or combined log format, as nginx, Apache and most servers write them.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import re

from ...errors import ConfigurationError
from .requests import EVERYBODY, LoggedRequest, ParseBlock, path_of
from .times import CommonTimes

EXAMPLE = '203.0.113.7 - - [10/Oct/2026:13:55:36 +0000] "GET /login HTTP/1.1" 200 512'

KEYS = ("client", "user", "all")
"""The possible keys of a request."""

_LINE = re.compile(r'(?:[^\s:]+:\d+ )?(\S+) \S+ ([^"\[\n]*?) ?\[([^\]\n]+)\] "([A-Za-z]+) (\S+).*\n', re.MULTILINE)
"""The virtual host of Apache's ``vhost_combined``, the client, the user, the time, the method and the target."""

_FIND = re.compile(f"^{_LINE.pattern}", re.MULTILINE).findall

MOST_TARGETS = 50_000
"""The number of targets whose paths are kept."""


def is_request(line: str) -> bool:
    """Whether a line is in the format, even if its time is invalid."""
    return _LINE.match(f"{line}\n") is not None


def access_log_parser(key: str) -> ParseBlock:
    """The parser of such lines, with the client, the user or everybody as the key.

    Raises ``ConfigurationError`` for any other key.
    """
    if key not in KEYS:
        raise ConfigurationError(
            f"--key must be client, user or all for a log in the common or combined format, not {key!r}: --key client"
        )
    time_us_of, paths = CommonTimes().time_us, dict[str, str]()

    def parse(text: str) -> list[LoggedRequest]:
        requests = list[LoggedRequest]()
        latest, time_us = "", 0.0
        for client, user, time, method, target in _FIND(text):
            if time != latest:
                try:
                    time_us = time_us_of(time)
                except (ValueError, IndexError):
                    continue
                latest = time
            path = paths.get(target)
            if path is None:
                if len(paths) >= MOST_TARGETS:
                    paths.clear()
                path = paths[target] = path_of(target)
            own = client if key == "client" else user if key == "user" else EVERYBODY
            requests.append((time_us, "" if own == "-" else own, method, path))
        return requests

    return parse
