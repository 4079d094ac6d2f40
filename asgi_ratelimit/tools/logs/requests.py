"""Requests as logs report them.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias
from urllib.parse import unquote

LoggedRequest: TypeAlias = tuple[float, str, str, str]
"""The time in whole microseconds, the key (whose request it is), the method, and the path without its query.

The key is empty if the request has none. It is a tuple, because there may be millions.
"""

ParseLine: TypeAlias = Callable[[str], LoggedRequest | None]
"""The request of a line; ``None`` for a line that cannot be read."""

ParseBlock: TypeAlias = Callable[[str], list[LoggedRequest]]
"""The requests of many lines in one text, each with its end."""


def by_line(parse: ParseLine) -> ParseBlock:
    """The parser of many lines that parses them one by one."""

    def parse_block(text: str) -> list[LoggedRequest]:
        return [request for line in text.removesuffix("\n").split("\n") if (request := parse(line)) is not None]

    return parse_block


EVERYBODY = "everybody"
"""The key of all requests if one bucket is for all clients."""


def path_of(target: str) -> str:
    """The path of the target of a request, as an ASGI app sees it: decoded, and without host and query."""
    path = target.partition("?")[0]
    if path[:1] != "/" and "://" in path:
        path = "/" + path.partition("://")[2].partition("/")[2]
    return unquote(path) if "%" in path else path
