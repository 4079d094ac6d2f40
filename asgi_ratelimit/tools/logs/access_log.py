"""Lines in the common or combined log format, as nginx, Apache and most servers write them.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import re

from ...errors import ConfigurationError
from .requests import EVERYBODY, LoggedRequest, ParseLine, path_of
from .times import CommonTimes

EXAMPLE = '203.0.113.7 - - [10/Oct/2026:13:55:36 +0000] "GET /login HTTP/1.1" 200 512'

KEYS = {"client": 1, "user": 2, "all": 0}
"""What the key of a request may be, and the number of its group; 0 is one key for all."""

_LINE = re.compile(r'(?:[^\s:]+:\d+ )?(\S+) \S+ ([^"\[]*?) ?\[([^\]]+)\] "([A-Za-z]+) (\S+)')
"""The virtual host of Apache's ``vhost_combined``, the client, the user, the time, the method and the target."""


def access_log_parser(key: str) -> ParseLine:
    """The parser of such lines, with the client, the user or everybody as the key.

    Raises ``ConfigurationError`` for any other key.
    """
    if key not in KEYS:
        raise ConfigurationError(
            f"--key must be client, user or all for a log in the common or combined format, not {key!r}: --key client"
        )
    group, match_line, time_us = KEYS[key], _LINE.match, CommonTimes().time_us

    def parse(line: str) -> LoggedRequest | None:
        match = match_line(line)
        if match is None:
            return None
        _, _, time, method, target = match.groups()
        try:
            key = match[group] if group else EVERYBODY
            return time_us(time), "" if key == "-" else key, method, path_of(target), 1
        except (ValueError, IndexError):
            return None

    return parse
