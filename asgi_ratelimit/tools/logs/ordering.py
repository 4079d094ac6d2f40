"""Puts requests in the order of their times, because servers log them in another order.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby, islice
from operator import itemgetter

from ...quotas import SECOND_US
from .requests import LoggedRequest

WINDOW = 20_000
"""The number of requests that are sorted at a time; one that is further out of place gets the time of those before
it."""

QUIET = 20
"""The most requests in a second for which consecutive requests with one key are assumed to have come at about one time.

In a busier second, the requests of others between them show better when they came.
"""

RUN_US = SECOND_US / 4
"""The time within which they came."""

_time_of, _key_of = itemgetter(0), itemgetter(1)


class Ordered:
    """The requests of one or several logs in the order of their times.

    A server logs a request when it is answered, so many are a little out of order. Requests from logs in whole seconds
    are spread over their second, and ``in_whole_seconds`` is set. ``late`` counts requests that came more than a window
    too late: they get the time of the latest request before them.
    """

    def __init__(self, logs: Sequence[Iterable[LoggedRequest]]) -> None:
        self._requests = iter(logs[0]) if len(logs) == 1 else heapq.merge(*logs, key=_time_of)
        self.late = 0
        self.in_whole_seconds = False

    def __iter__(self) -> Iterator[LoggedRequest]:
        return chain.from_iterable(map(self._spread, self._blocks()))

    def _spread(self, block: list[LoggedRequest]) -> list[LoggedRequest]:
        if not block or not _is_in_whole_seconds(block):
            return block
        self.in_whole_seconds = True
        return _spread(block)

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
    """Spread requests in whole seconds over their seconds: evenly, except for those of one key in a quiet second."""
    spread, start = list[LoggedRequest](), 0
    while start < len(requests):
        at = requests[start][0]
        end = bisect_right(requests, at, start, key=_time_of)
        step, same = SECOND_US / (end - start), requests[start:end]
        if 1 < len(same) <= QUIET:
            spread += _in_runs(at, same)
        else:
            spread += [(at + each * step // 1.0, key, method, path) for each, (_, key, method, path) in enumerate(same)]
        start = end
    return spread


def _in_runs(at: float, requests: Sequence[LoggedRequest]) -> Iterator[LoggedRequest]:
    """Requests of one second; consecutive ones with one key, such as a page and what it loads, come at one time."""
    runs = [list(run) for _, run in groupby(requests, key=_key_of)]
    step = SECOND_US / len(runs)
    for number, run in enumerate(runs):
        within = min(step, RUN_US) / len(run)
        for each, (_, key, method, path) in enumerate(run):
            yield at + (number * step + each * within) // 1.0, key, method, path
