"""Instruments of ``prometheus_client``."""

from __future__ import annotations

from threading import Lock
from typing import Final
from weakref import WeakKeyDictionary

from ..argument_errors import shows_use
from ..errors import ConfigurationError, to_install
from ..hooks import Hook
from .instruments import Instrument
from .metrics_hook import Bind, Labels, MetricsHook, Record

try:
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
except ImportError as error:
    raise ImportError(f"metrics.prometheus() needs prometheus_client: {to_install('prometheus')}") from error

_hooks: WeakKeyDictionary[CollectorRegistry, MetricsHook] = WeakKeyDictionary()
_lock = Lock()

_MODES: Final = {"sum": "livesum", "max": "livemax"}


@shows_use("prometheus(registry)")
def prometheus(registry: CollectorRegistry | None = None) -> Hook:
    """A hook that counts and measures in a registry of ``prometheus_client``, by default its own.

    The same registry always has the same hook, so the numbers of several middlewares, limiters and transports add up.
    If ``PROMETHEUS_MULTIPROC_DIR`` is set, the numbers of all processes add up. Raises ``ConfigurationError`` for
    anything but a registry.
    """
    registry = REGISTRY if registry is None else registry
    if not isinstance(registry, CollectorRegistry):
        raise ConfigurationError(
            f"registry must be a CollectorRegistry of prometheus_client, not {registry!r}: prometheus()"
        )
    with _lock:
        hook = _hooks.get(registry)
        if hook is None:
            hook = _hooks[registry] = MetricsHook(lambda each: bound(each, registry), "prometheus()")
        return hook


def bound(instrument: Instrument, registry: CollectorRegistry) -> Bind:
    """An instrument in a registry."""
    metric = _metric(instrument, registry)
    record = {"counter": "inc", "up_down_counter": "inc", "gauge": "set", "histogram": "observe"}[instrument.kind]

    def bind(labels: Labels) -> Record:
        child: Record = getattr(metric.labels(*labels) if labels else metric, record)
        return child

    return bind


def _metric(instrument: Instrument, registry: CollectorRegistry) -> Counter | Gauge | Histogram:
    name, text, labels = instrument.prometheus_name, instrument.description, instrument.labels
    if instrument.kind == "counter":
        return Counter(name, text, labels, registry=registry)
    if instrument.kind == "histogram":
        return Histogram(name, text, labels, registry=registry, buckets=instrument.buckets)
    mode = _MODES[instrument.across]
    return Gauge(name, text, labels, registry=registry, multiprocess_mode=mode)  # type: ignore[arg-type]  # one of them
