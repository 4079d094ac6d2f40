"""Requests in the order of their times, although servers log them in another.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
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
        return chain.from_iterable(_spread(block) if _is_in_whole_seconds(block) else block for block in self._blocks())

    def _blocks(self) -> Iterator[list[LoggedRequest]]:
        """The requests in blocks, in order, and never with one second in two blocks."""
        pending, latest = list[LoggedRequest](), 0.0
        while True:
            read = list(islice(self._requests, WINDOW))
            pending += read
            pending.sort(key=_time_of)
            late = bisect_left(pending, latest, key=_time_of)
            if late:
                self.late += late
                pending[:late] = [(latest, *each[1:]) for each in pending[:late]]
            if len(read) < WINDOW:
                yield pending
                return
            latest = pending[len(pending) // 2][0] // SECOND_US * SECOND_US
            ready = bisect_left(pending, latest, key=_time_of)
            yield pending[:ready]
            del pending[:ready]


def _is_in_whole_seconds(requests: Iterable[LoggedRequest]) -> bool:
    return not any([each[0] % SECOND_US for each in requests])  # noqa: C419  # twice as fast as a generator


def _spread(requests: Sequence[LoggedRequest]) -> list[LoggedRequest]:
    """Requests in whole seconds, evenly over their seconds."""
    spread, start = list[LoggedRequest](), 0
    while start < len(requests):
        at = requests[start][0]
        end = bisect_right(requests, at, start, key=_time_of)
        step = SECOND_US / (end - start)
        same = enumerate(requests[start:end])
        spread += [
            (at + number * step // 1.0, key, method, path, cost) for number, (_, key, method, path, cost) in same
        ]
        start = end
    return spread
