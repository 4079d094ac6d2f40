"""Instruments of OpenTelemetry."""

from __future__ import annotations

from importlib.metadata import version
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

from ..argument_errors import shows_use
from ..errors import ConfigurationError, to_install
from ..hooks import Hook
from .instruments import Instrument
from .metrics_hook import Bind, Labels, MetricsHook, Record

try:
    from opentelemetry.metrics import Meter, MeterProvider, get_meter_provider
except ImportError as error:
    raise ImportError(f"metrics.opentelemetry() needs opentelemetry: {to_install('opentelemetry')}") from error

_hooks: WeakKeyDictionary[MeterProvider, MetricsHook] = WeakKeyDictionary()
_lock = Lock()


@shows_use("opentelemetry(meter_provider)")
def opentelemetry(meter_provider: MeterProvider | None = None) -> Hook:
    """A hook that counts and measures through a provider of meters, by default the global one.

    The same provider always has the same hook, so the numbers of several middlewares, limiters and transports add up.
    Raises ``ConfigurationError`` for anything but a provider.
    """
    provider = get_meter_provider() if meter_provider is None else meter_provider
    if not isinstance(provider, MeterProvider):
        raise ConfigurationError(
            f"meter_provider must be a MeterProvider of opentelemetry, not {provider!r}: opentelemetry()"
        )
    with _lock:
        hook = _hooks.get(provider)
        if hook is None:
            meter = provider.get_meter("asgi_ratelimit", version("asgi-ratelimit-pacer"))
            hook = _hooks[provider] = MetricsHook(lambda each: _bound(each, meter), "opentelemetry()")
        return hook


def _bound(instrument: Instrument, meter: Meter) -> Bind:
    record = _record(instrument, meter)

    def bind(labels: Labels) -> Record:
        attributes = dict(zip(instrument.labels, labels))
        return lambda value: record(value, attributes)

    return bind


def _record(instrument: Instrument, meter: Meter) -> Any:
    name, unit, text = instrument.name, instrument.unit, instrument.description
    if instrument.kind == "counter":
        return meter.create_counter(name, unit, text).add
    if instrument.kind == "up_down_counter":
        return meter.create_up_down_counter(name, unit, text).add
    if instrument.kind == "gauge":
        return meter.create_gauge(name, unit, text).set
    buckets = instrument.buckets
    return meter.create_histogram(name, unit, text, explicit_bucket_boundaries_advisory=buckets).record
