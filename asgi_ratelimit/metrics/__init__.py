"""Metrics for Prometheus and OpenTelemetry: hooks that count decisions, and measure the store and the queues.

Each needs its library, which is imported at first use: ``pip install "asgi-ratelimit-pacer[prometheus]"``, or
``[opentelemetry]``. The instruments are named like those of ASP.NET's rate limits in the semantic conventions of
OpenTelemetry.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ..errors import ConfigurationError, shows_use, to_install
from ..hooks import Event, Failure, Hook, StoreCall
from ..stores import ByStore

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from prometheus_client import CollectorRegistry

__all__ = ["opentelemetry", "prometheus"]

_FAST = (0.00001, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
_SLOW = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 30.0, 60.0)
_FUNCTION = ("rule", "function")
_SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)

Labels: TypeAlias = tuple[str, ...]

# Maps labels to the function that adds to a counter, sets a gauge, or observes a value under them.
Bind: TypeAlias = Callable[[Labels], Callable[[float], object]]


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
    Instrument("held_requests", "up_down_counter", "{request}", "Requests that hold a place in flight.", ("rule",)),
    Instrument("request.time_in_queue", "histogram", "s", "How long they have waited.", ("name",), _SLOW),
    Instrument("store.call.duration", "histogram", "s", "How long a call to Redis took.", ("store", "outcome"), _FAST),
    Instrument("store.batch.size", "histogram", "{take}", "Takes and the like in such a call.", ("store",), _SIZES),
    Instrument("degraded", "gauge", "", "1 while the store, or a node of it, is out.", ("store",), is_flag=True),
    Instrument("outage_ledger.entries", "gauge", "{entry}", "What the store is still to be charged with.", ("store",)),
    Instrument("function.failures", "counter", "{failure}", "Functions of the program that failed.", _FUNCTION),
)


class MetricsHook:
    """A hook that counts decisions and failures, and measures queues and the store. ``bind`` makes an instrument.

    No label is a key, a path, or anything else that clients choose.
    """

    def __init__(self, bind: Callable[[Instrument], Bind]) -> None:
        self._series = {each.short_name: cache(bind(each)) for each in INSTRUMENTS}

    def __call__(self, event: Event) -> None:
        """Count a decision."""
        self.record("requests", 1, event.rule, event.quota.name, event.result)
        if event.latency is not None:
            self.record("take.duration", event.latency)
        if event.waited is not None:
            self.record("request.time_in_queue", event.waited, event.name)
        if event.degraded:
            self.record("degraded_requests", 1, event.rule)

    def failed(self, failure: Failure) -> None:
        """Count a failure of a function of the program."""
        self.record("function.failures", 1, failure.name, failure.failed)

    def queued(self, name: str, change: int) -> None:
        """Count a caller that begins to wait, or goes."""
        self.record("queued_requests", change, name)

    def held(self, name: str, change: int) -> None:
        """Count a request that gets a place in flight, or gives it back."""
        self.record("held_requests", change, name)

    def store_called(self, call: StoreCall) -> None:
        """Measure a call of a store."""
        self.record("store.call.duration", call.seconds, call.store, "failed" if call.error else "answered")
        self.record("store.batch.size", call.size, call.store)
        self.record("degraded", float(call.is_out), call.store)
        self.record("outage_ledger.entries", call.ledger, call.store)

    def record(self, short_name: str, value: float, *labels: str) -> None:
        """Record a value of an instrument under these labels."""
        self._series[short_name](labels)(value)


# The hook of a registry or provider: always the same one, so that the numbers of all its users add up.
_hooks: ByStore[MetricsHook] = ByStore()


@shows_use("prometheus(registry)")
def prometheus(registry: CollectorRegistry | None = None) -> Hook:
    """A hook that counts and measures in a registry of ``prometheus_client``, by default its own.

    The same registry always has the same hook, so the numbers of several middlewares, limiters and transports add up.
    If ``PROMETHEUS_MULTIPROC_DIR`` is set, the numbers of all processes add up. Raises ``ConfigurationError`` for
    anything but a registry.
    """
    try:
        from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
    except ImportError as error:
        raise ImportError(f"metrics.prometheus() needs prometheus_client: {to_install('prometheus')}") from error
    registry = REGISTRY if registry is None else registry
    if not isinstance(registry, CollectorRegistry):
        raise ConfigurationError(f"registry must be a CollectorRegistry, not {registry!r}: prometheus()")

    def bind(instrument: Instrument) -> Bind:
        options: dict[str, Any] = {"registry": registry}
        kind: Any = {"counter": Counter, "histogram": Histogram}.get(instrument.kind, Gauge)
        if kind is Histogram:
            options["buckets"] = instrument.buckets
        elif kind is Gauge:
            options["multiprocess_mode"] = "livemax" if instrument.is_flag else "livesum"
        metric = kind(instrument.prometheus_name, instrument.description, instrument.labels, **options)
        verb = {"gauge": "set", "histogram": "observe"}.get(instrument.kind, "inc")
        return lambda labels: getattr(metric.labels(*labels) if labels else metric, verb)

    return _hooks.made(registry, lambda _: MetricsHook(bind))


@shows_use("opentelemetry(meter_provider)")
def opentelemetry(meter_provider: MeterProvider | None = None) -> Hook:
    """A hook that counts and measures through a provider of meters, by default the global one.

    The same provider always has the same hook, so the numbers of several middlewares, limiters and transports add up.
    Raises ``ConfigurationError`` for anything but a provider.
    """
    try:
        from opentelemetry.metrics import MeterProvider, get_meter_provider
    except ImportError as error:
        raise ImportError(f"metrics.opentelemetry() needs opentelemetry: {to_install('opentelemetry')}") from error
    provider = get_meter_provider() if meter_provider is None else meter_provider
    if not isinstance(provider, MeterProvider):
        raise ConfigurationError(f"meter_provider must be a MeterProvider, not {provider!r}: opentelemetry()")
    meter = provider.get_meter("asgi_ratelimit", version("asgi-ratelimit-pacer"))
    verbs = {"counter": "add", "up_down_counter": "add", "gauge": "set", "histogram": "record"}

    def bind(instrument: Instrument) -> Bind:
        options = {"explicit_bucket_boundaries_advisory": instrument.buckets} if instrument.buckets else {}
        create = getattr(meter, f"create_{instrument.kind}")
        made = create(instrument.name, instrument.unit, instrument.description, **options)
        record = getattr(made, verbs[instrument.kind])
        return lambda labels: partial(record, attributes=dict(zip(instrument.labels, labels)))

    return _hooks.made(provider, lambda _: MetricsHook(bind))
