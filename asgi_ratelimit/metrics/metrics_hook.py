"""The instruments, named like those of ASP.NET's rate limits in the semantic conventions of OpenTelemetry.

And the hook that records in them, for either library, with a bounded number of series.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import Any, Literal, TypeAlias
from weakref import WeakKeyDictionary

from ..hooks import Event, Failure, StoreCall

MAX_SERIES = 200
"""The most sets of labels of an instrument in a process."""

OTHER = "other"
"""Replaces the names in all further sets."""

_NO_NAMES = ("result", "outcome", "function")
"""The labels with few values of this package. All others are names of the program, which may be many."""

_FAST = (0.00001, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
_SLOW = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 30.0, 60.0)
_FUNCTION = ("rule", "function")
_SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)

Labels: TypeAlias = tuple[str, ...]

Record: TypeAlias = Callable[[float], object]
"""Adds to a counter, sets a gauge, or observes a value."""

Bind: TypeAlias = Callable[[Labels], Record]
"""Maps labels to the function that records under them."""


@dataclass(frozen=True, slots=True)
class Instrument:
    """An instrument with its ``labels``; ``buckets`` are those of a histogram.

    Several processes make one number of a gauge: their sum, or, if ``is_flag``, the largest.
    """

    short_name: str
    kind: Literal["counter", "up_down_counter", "gauge", "histogram"]
    unit: str
    description: str
    labels: Labels = ()
    buckets: tuple[float, ...] = ()
    is_flag: bool = False

    @property
    def name(self) -> str:
        """Its name for OpenTelemetry."""
        return f"asgi_ratelimit.{self.short_name}"

    @property
    def prometheus_name(self) -> str:
        """Its name for Prometheus, as the exporters of OpenTelemetry write it."""
        seconds = "_seconds" if self.unit == "s" else ""
        return self.name.replace(".", "_") + seconds + ("_total" if self.kind == "counter" else "")


INSTRUMENTS = (
    Instrument("requests", "counter", "{request}", "Decisions on requests and calls.", ("rule", "quota", "result")),
    Instrument("degraded_requests", "counter", "{request}", "Decisions that were made without the store.", ("rule",)),
    Instrument("take.duration", "histogram", "s", "How long the store took to decide.", buckets=_FAST),
    Instrument("queued_requests", "up_down_counter", "{request}", "Requests and calls that wait now.", ("name",)),
    Instrument("request.time_in_queue", "histogram", "s", "How long they have waited.", ("name",), _SLOW),
    Instrument("store.call.duration", "histogram", "s", "How long a call to Redis took.", ("store", "outcome"), _FAST),
    Instrument("store.batch.size", "histogram", "{take}", "Takes and the like in such a call.", ("store",), _SIZES),
    Instrument("degraded", "gauge", "", "1 while the store, or a node of it, is out.", ("store",), is_flag=True),
    Instrument("outage_ledger.entries", "gauge", "{entry}", "What the store is still to be charged with.", ("store",)),
    Instrument("function.failures", "counter", "{failure}", "Functions of the program that failed.", _FUNCTION),
)


class BoundedSeries:
    """The series of one instrument: at most ``MAX_SERIES``, and then one for each set of labels that are not names."""

    def __init__(self, instrument: Instrument, bind: Bind) -> None:
        self._labels = instrument.labels
        self._bind = bind
        self._records: dict[Labels, Record] = {}

    def record(self, value: float, *labels: str) -> None:
        """Record a value under these labels."""
        (self._records.get(labels) or self._new(labels))(value)

    def _new(self, labels: Labels) -> Record:
        if len(self._records) >= MAX_SERIES:
            labels = tuple([each if label in _NO_NAMES else OTHER for label, each in zip(self._labels, labels)])
        if labels not in self._records:
            self._records[labels] = self._bind(labels)
        return self._records[labels]


class MetricsHook:
    """A hook that counts decisions and failures, and measures queues and the store. ``bind`` makes an instrument.

    No label is a key, a path, or anything else that clients choose.
    """

    def __init__(self, bind: Callable[[Instrument], Bind], description: str) -> None:
        self._description = description
        self._record = {each.short_name: BoundedSeries(each, bind(each)).record for each in INSTRUMENTS}

    def __repr__(self) -> str:
        return self._description

    def __call__(self, event: Event) -> None:
        """Count a decision."""
        rule, record = event.rule, self._record
        record["requests"](1, rule, event.quota.name, event.result)
        if event.latency is not None:
            record["take.duration"](event.latency)
        if event.waited is not None:
            record["request.time_in_queue"](event.waited, event.name)
        if event.degraded:
            record["degraded_requests"](1, rule)

    def failed(self, failure: Failure) -> None:
        """Count a failure of a function of the program."""
        self._record["function.failures"](1, failure.name, failure.failed)

    def queued(self, name: str, change: int) -> None:
        """Count a caller that begins to wait, or goes."""
        self._record["queued_requests"](change, name)

    def store_called(self, call: StoreCall) -> None:
        """Measure a call of a store."""
        store, record = call.store, self._record
        record["store.call.duration"](call.seconds, store, "failed" if call.error else "answered")
        record["store.batch.size"](call.size, store)
        record["degraded"](float(call.is_out), store)
        record["outage_ledger.entries"](call.ledger, store)


_hooks: WeakKeyDictionary[Any, MetricsHook] = WeakKeyDictionary()
_lock = Lock()


def hook_of(library: object, bind: Callable[[Instrument], Bind], description: str) -> MetricsHook:
    """The hook of a registry or provider: always the same one, so that the numbers of all its users add up."""
    with _lock:
        hook = _hooks.get(library)
        if hook is None:
            hook = _hooks[library] = MetricsHook(bind, description)
        return hook
