"""Requests in the order of their times, although servers log them in another.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice
from operator import itemgetter

from ...quotas import SECOND_US
from .requests import LoggedRequest

WINDOW = 20_000
"""Requests that are sorted at a time: one that is further out of place is moved to the time of those before it."""

_time_of = itemgetter(0)


class Ordered:
    """The requests of one or several logs in the order of their times.

    A server logs a request when it is answered, so that many are a little out of order. Those of logs in whole seconds
    are spread evenly over their second. ``late`` counts those that came more than a window too late: they get the time
    of the latest request before them.
    """

    def __init__(self, logs: Sequence[Iterable[LoggedRequest]]) -> None:
        self._requests = iter(logs[0]) if len(logs) == 1 else heapq.merge(*logs, key=_time_of)
        self.late = 0

    def __iter__(self) -> Iterator[LoggedRequest]:
        for block in self._blocks():
            yield from _spread(block) if _is_in_whole_seconds(block) else block

    def _blocks(self) -> Iterator[list[LoggedRequest]]:
        """The requests in blocks, in order, and never with one second in two blocks."""
        pending, latest = list[LoggedRequest](), 0.0
        while True:
            read = list(islice(self._requests, WINDOW))
            pending += [each if each[0] >= latest else self._moved(each, latest) for each in read]
            pending.sort(key=_time_of)
            if len(read) < WINDOW:
                yield pending
                return
            latest = pending[len(pending) // 2][0] // SECOND_US * SECOND_US
            ready = next((at for at, each in enumerate(pending) if each[0] >= latest), 0)
            yield pending[:ready]
            del pending[:ready]

    def _moved(self, request: LoggedRequest, time_us: float) -> LoggedRequest:
        self.late += 1
        return (time_us, *request[1:])


def _is_in_whole_seconds(requests: Iterable[LoggedRequest]) -> bool:
    return not any(each[0] % SECOND_US for each in requests)


def _spread(requests: Iterable[LoggedRequest]) -> Iterator[LoggedRequest]:
    """Requests in whole seconds, evenly over their seconds."""
    for time_us, group in groupby(requests, key=_time_of):
        same = list(group)
        step = SECOND_US / len(same)
        for number, request in enumerate(same):
            yield (time_us + number * step // 1.0, *request[1:])
