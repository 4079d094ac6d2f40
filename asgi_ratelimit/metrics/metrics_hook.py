"""The hook that counts and measures, for either library; and a bounded number of series."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from ..hooks import Event, Failure, StoreCall
from .instruments import (
    BATCH_SIZE,
    CALL_DURATION,
    DEGRADED,
    DEGRADED_REQUESTS,
    FUNCTION_FAILURES,
    LEDGER,
    QUEUED_REQUESTS,
    REQUESTS,
    TAKE_DURATION,
    TIME_IN_QUEUE,
    Instrument,
)

MAX_SERIES = 200
"""The most sets of labels of an instrument in a process."""

OTHER = "other"
"""Replaces the names in all further sets."""

Labels: TypeAlias = tuple[str, ...]

Record: TypeAlias = Callable[[float], object]
"""Adds to a counter, sets a gauge, or observes a value."""

Bind: TypeAlias = Callable[[Labels], Record]
"""Maps labels to the function that records under them."""


class BoundedSeries:
    """The series of one instrument: at most ``MAX_SERIES``, and then one for each set of labels that are not names."""

    def __init__(self, instrument: Instrument, bind: Bind) -> None:
        self._names = instrument.names
        self._bind = bind
        self._records: dict[Labels, Record] = {}

    def record(self, value: float, *labels: str) -> None:
        """Record a value under these labels."""
        (self._records.get(labels) or self._new(labels))(value)

    def _new(self, labels: Labels) -> Record:
        if len(self._records) >= MAX_SERIES:
            labels = (OTHER,) * self._names + labels[self._names :]
        if labels not in self._records:
            self._records[labels] = self._bind(labels)
        return self._records[labels]


class MetricsHook:
    """A hook that counts decisions and failures, and measures queues and the store. ``bind`` makes an instrument.

    No label is a key, a path, or anything else that clients choose.
    """

    def __init__(self, bind: Callable[[Instrument], Bind], description: str) -> None:
        self._description = description

        def series(instrument: Instrument) -> Callable[..., None]:
            return BoundedSeries(instrument, bind(instrument)).record

        self._requests = series(REQUESTS)
        self._degraded_requests = series(DEGRADED_REQUESTS)
        self._take_duration = bind(TAKE_DURATION)(())
        self._queued = series(QUEUED_REQUESTS)
        self._time_in_queue = series(TIME_IN_QUEUE)
        self._call_duration = series(CALL_DURATION)
        self._batch_size = series(BATCH_SIZE)
        self._degraded = series(DEGRADED)
        self._ledger = series(LEDGER)
        self._function_failures = series(FUNCTION_FAILURES)

    def __repr__(self) -> str:
        return self._description

    def __call__(self, event: Event) -> None:
        """Count a decision."""
        rule = event.rule
        self._requests(1, rule, event.quota.name, event.result)
        if event.latency is not None:
            self._take_duration(event.latency)
        if event.waited is not None:
            self._time_in_queue(event.waited, event.name)
        if event.degraded:
            self._degraded_requests(1, rule)

    def failed(self, failure: Failure) -> None:
        """Count a failure of a function of the program."""
        self._function_failures(1, failure.name, failure.failed)

    def queued(self, name: str, change: int) -> None:
        """Count a caller that begins to wait, or goes."""
        self._queued(change, name)

    def store_called(self, call: StoreCall) -> None:
        """Measure a call of a store."""
        store = call.store
        self._call_duration(call.seconds, store, "failed" if call.error else "answered")
        self._batch_size(call.size, store)
        self._degraded(float(call.is_out), store)
        self._ledger(call.ledger, store)
