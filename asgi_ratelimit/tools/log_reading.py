"""Reads logs: their files, their format, the order of their requests; and counts the lines that cannot be read."""

from __future__ import annotations

import gzip
import heapq
import sys
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any

from ..errors import ConfigurationError
from ..quotas import SECOND_US
from . import log_lines as formats
from .log_lines import UNREADABLE, Fields, LoggedRequest, ParseLine

STDIN = "-"
# The most bytes of a line; a longer one is unreadable, and is not kept.
LONGEST = 1 << 14

# The number of lines by which the format is found.
LOOKS = 100

# The number of requests that are sorted at a time; one that is further out of place gets the time of those before
# it.
WINDOW = 20_000


@dataclass(slots=True)
class LogReader:
    """Reads the requests of logs, in the order of their times, and counts.

    ``names`` are files, plain or in gzip; ``-`` is the standard input. ``key`` says whose a request is: ``client``,
    ``user``, ``all``, or ``field:NAME`` in a log of JSON. ``fields`` are names of fields in such a log; with
    ``needs_method``, there must be one for the method.
    """

    names: Sequence[str]
    key: str = "client"
    fields: Fields = field(default_factory=dict)
    needs_method: bool = False
    lines: int = 0
    """Lines that have been read."""
    unreadable: int = 0
    """Lines among them that are not requests."""
    late: int = 0
    """Requests so far out of order that their time is not exact."""
    in_whole_seconds: bool = False
    """Whether the times of a log are whole seconds, over which its requests were spread."""

    def requests(self) -> Iterator[LoggedRequest]:
        """All requests.

        Raises ``ConfigurationError`` for a log of which less than half can be read, and for an empty one; ``OSError``.
        """
        yield from self.in_order([self._requests(name) for name in dict.fromkeys(self.names)])
        if not self.lines:
            raise ConfigurationError(f"{' and '.join(self.names)} is empty; lines are such as{_EXAMPLES}")

    def in_order(self, logs: Sequence[Iterable[LoggedRequest]]) -> Iterator[LoggedRequest]:
        """The requests of logs in the order of their times: a server logs them when they are answered.

        Those in whole seconds are spread over their second.
        """
        ordered = self._sorted(heapq.merge(*[self._looked_at(iter(log)) for log in logs], key=_time_of))
        yield from _spread(ordered) if self.in_whole_seconds else ordered

    def _looked_at(self, log: Iterator[LoggedRequest]) -> Iterator[LoggedRequest]:
        """The requests of a log, after a look at the times of the first ones."""
        first = list(islice(log, LOOKS))
        self.in_whole_seconds |= bool(first) and not any(each[0] % SECOND_US for each in first)
        return chain(first, log)

    def _sorted(self, requests: Iterator[LoggedRequest]) -> Iterator[LoggedRequest]:
        """The requests in order; one that comes a window too late gets the time of the latest before it."""
        pending, latest = list(islice(requests, WINDOW)), 0.0
        while pending:
            pending = sorted([*pending, *islice(requests, WINDOW)], key=_time_of)
            late = bisect_left(pending, latest, key=_time_of)
            self.late += late
            pending[:late] = [(latest, *each[1:]) for each in pending[:late]]
            yield from pending[:WINDOW]
            latest = pending[:WINDOW][-1][0]
            del pending[:WINDOW]

    def _requests(self, name: str) -> Iterator[LoggedRequest]:
        lines = lines_of(name)
        first = list(islice(lines, LOOKS))
        if not first:  # it has no format, with which the key might not agree
            return
        parse, read, unreadable, problem = self._parser(first), 0, 0, ""
        for line in chain(first, lines):
            read += 1
            self.lines += 1
            try:
                request = parse(line)
            except UNREADABLE as error:
                unreadable += 1
                if line.strip():
                    problem = problem or f"{line[:200]!r}: {error}"
                if unreadable == read == len(first):
                    found = f"none of the first {read} lines of {name} is a request, such as{_EXAMPLES}\nbut "
                    raise ConfigurationError(f"{found}{problem or repr('')}\n{_OTHERS}") from error
            else:
                yield request
        self.unreadable += unreadable
        if unreadable * 2 > read:
            count = f"only {read - unreadable:,} of the {read:,} lines of {name} can be read as requests"
            raise ConfigurationError(f"{count}. Remove the others, if they are none. The first one is\n    {problem}")

    def _parser(self, first: Sequence[str]) -> ParseLine:
        """The parser of the format in which most of these lines are, the first of a log."""
        entries = [formats.object_in(line) for line in first if _reads(formats.object_in, line)]
        counts = {read: len([line for line in first if _reads(read, line)]) for read in formats.FORMATS}
        best = max(counts, key=lambda read: counts[read])
        if len(entries) > counts[best]:
            return formats.json_parser(entries, self.key, self.fields, needs_method=self.needs_method)
        return formats.text_parser(best, self.key)


def lines_of(name: str) -> Iterator[str]:
    """The lines of a file, without their ends; a line that is too long is empty.

    Raises ``OSError`` for a file that cannot be read, or is damaged.
    """
    with sys.stdin.buffer if name == STDIN else Path(name).open("rb") as file:
        source: Any = file
        start = source.peek(3)
        if start.startswith(b"\xef\xbb\xbf"):
            source.read(3)
        elif start.startswith(b"\x1f\x8b"):
            source = gzip.GzipFile(fileobj=file)
        try:
            for line in iter(partial(source.readline, LONGEST), b""):
                rest = line
                while len(rest) == LONGEST and not rest.endswith(b"\n"):
                    rest = source.readline(LONGEST)
                yield line.rstrip(b"\r\n").decode("utf-8", "replace") if rest is line else ""
        except (zlib.error, EOFError, gzip.BadGzipFile) as error:
            raise OSError(f"{name} is damaged: {error}") from error


_EXAMPLES = f"\n    {formats.EXAMPLE}\n    {formats.JSON_EXAMPLE}"
_OTHERS = "which logs can be read, and what to do with others, such as those of docker: docs/what-if.md#logs"


def _reads(read: Callable[[str], Any], line: str) -> bool:
    try:
        read(line)
    except UNREADABLE:
        return False
    return True


_time_of = itemgetter(0)


def _spread(requests: Iterable[LoggedRequest]) -> Iterator[LoggedRequest]:
    """Spread requests in whole seconds evenly over their seconds.

    What fills more than a window in one second comes at the end of that.
    """
    latest = 0.0
    for at, group in groupby(requests, key=_time_of):
        while same := list(islice(group, WINDOW)):
            step = 0.0 if at % SECOND_US else SECOND_US / len(same)
            for place, (_, key, method, path) in enumerate(same):
                latest = max(latest, at + place * step // 1.0)
                yield latest, key, method, path
