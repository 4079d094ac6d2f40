"""Reads logs: detects their format, and counts the lines that could not be read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

from ...errors import ConfigurationError
from . import access_log, json_lines
from .files import LogFile
from .json_lines import Fields
from .ordering import Ordered
from .requests import LoggedRequest, ParseBlock, by_line

LOOKS = 100
"""The number of lines that are searched for the first readable one."""

_UVICORN = re.compile(r'\S+:\d+ - "[A-Z]+ \S+ HTTP/[\d.]+" \d')
"""A line of uvicorn's access log."""

_FORMATS = f"\n    {access_log.EXAMPLE}\n    {json_lines.EXAMPLE}"


@dataclass(slots=True)
class LogReader:
    """Reads the requests of logs, in the order of their times, and counts.

    ``key`` says whose a request is: ``client``, ``user``, ``all``, or ``field:NAME`` in a log of JSON. ``fields`` are
    names of fields in such a log. ``advance`` is called with the bytes that have been read since the last call.
    """

    names: Sequence[str]
    key: str = "client"
    fields: Fields = field(default_factory=dict)
    advance: Callable[[int], None] = lambda _: None
    lines: int = 0
    """Lines that have been read."""
    unreadable: int = 0
    """Lines among them that are not requests."""
    late: int = 0
    """Requests so far out of order that their time is not exact."""
    in_whole_seconds: bool = False
    """Whether the times are whole seconds, over which the requests were spread."""
    _files: list[LogFile] = field(default_factory=list)

    def __post_init__(self) -> None:
        twice = next((name for number, name in enumerate(self.names) if name in self.names[:number]), None)
        if twice is not None:
            raise ConfigurationError(f"{twice} is named twice: access.log access.log.1")
        self._files = [LogFile(name) for name in self.names]

    @property
    def size(self) -> int:
        """The bytes of all files, or 0 if that is unknown."""
        sizes = [each.size for each in self._files]
        return sum(sizes) if all(sizes) else 0

    def requests(self) -> Iterator[LoggedRequest]:
        """All requests. Raises ``ConfigurationError`` for a log without any, and ``OSError``."""
        ordered = Ordered([chain.from_iterable(self._blocks(file)) for file in self._files])
        return chain(ordered, self._end(ordered))

    def _end(self, ordered: Ordered) -> Iterator[LoggedRequest]:
        """Yield nothing; check the result once all requests have been read."""
        self.late, self.in_whole_seconds = ordered.late, ordered.in_whole_seconds
        if not self.lines:
            are = "is" if len(self._files) == 1 else "are"
            names = " and ".join([file.name for file in self._files])
            raise ConfigurationError(f"{names} {are} empty; lines are such as{_FORMATS}")
        yield from ()

    def _blocks(self, file: LogFile) -> Iterator[list[LoggedRequest]]:
        """The requests of a file, many at a time."""
        parse: ParseBlock | None = None
        for text in file.blocks(self.advance):
            if parse is None:
                parse = self._parser(file, text.split("\n", LOOKS)[:LOOKS])
            requests, lines = parse(text), text.count("\n")
            self.lines += lines
            self.unreadable += lines - len(requests)
            yield requests

    def _parser(self, file: LogFile, first: list[str]) -> ParseBlock:
        """The parser of a log that starts with these lines."""
        for line in first:
            if access_log.is_request(line):
                return access_log.access_log_parser(self.key)
            if line.lstrip()[:1] == "{" and json_lines.is_object(line):
                return by_line(json_lines.json_parser(first, self.key, self.fields))
        sample = next((line for line in first if line.strip()), "")
        problem = f"no line of {file.name} is a request, such as{_FORMATS}\nbut {sample[:200]!r}"
        raise ConfigurationError(f"{problem}\n{hint}" if (hint := _hint(first, sample)) else problem)


def _hint(first: Sequence[str], sample: str) -> str:
    """What to do with a log of an unreadable kind."""
    if "\0" in sample or "\ufffd" in sample:
        return "it is not text, or compressed: decompress it first"
    if any(_UVICORN.search(line) for line in first):
        return (
            "a log of uvicorn has no times: read the log of the proxy in front of it, or let a hook write one, "
            "docs/what-if.md#a-log-of-your-own"
        )
    if sample.lstrip()[:1] in ("[", "{"):
        each = ".[]" if sample.lstrip()[:1] == "[" else "."
        return f"each line has to be an object of JSON: jq -c '{each}' makes such lines"
    return ""
