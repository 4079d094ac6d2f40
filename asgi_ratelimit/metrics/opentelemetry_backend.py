"""Instruments of OpenTelemetry."""

from __future__ import annotations

from importlib.metadata import version

from ..argument_errors import shows_use
from ..errors import ConfigurationError, to_install
from ..hooks import Hook
from .metrics_hook import Bind, Instrument, Labels, Record, hook_of

try:
    from opentelemetry.metrics import Meter, MeterProvider, get_meter_provider
except ImportError as error:
    raise ImportError(f"metrics.opentelemetry() needs opentelemetry: {to_install('opentelemetry')}") from error

_VERBS = {"counter": "add", "up_down_counter": "add", "gauge": "set", "histogram": "record"}


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
    meter = provider.get_meter("asgi_ratelimit", version("asgi-ratelimit-pacer"))
    return hook_of(provider, lambda each: _bound(each, meter), "opentelemetry()")


def _bound(instrument: Instrument, meter: Meter) -> Bind:
    options = {"explicit_bucket_boundaries_advisory": instrument.buckets} if instrument.buckets else {}
    create = getattr(meter, f"create_{instrument.kind}")
    made = create(instrument.name, instrument.unit, instrument.description, **options)
    record = getattr(made, _VERBS[instrument.kind])

    def bind(labels: Labels) -> Record:
        attributes = dict(zip(instrument.labels, labels))
        return lambda value: record(value, attributes)

    return bind
