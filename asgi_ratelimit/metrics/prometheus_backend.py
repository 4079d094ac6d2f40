"""Instruments of ``prometheus_client``."""

from __future__ import annotations

from typing import Any

from ..argument_errors import shows_use
from ..errors import ConfigurationError, to_install
from ..hooks import Hook
from .metrics_hook import Bind, Instrument, Labels, Record, hook_of

try:
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
except ImportError as error:
    raise ImportError(f"metrics.prometheus() needs prometheus_client: {to_install('prometheus')}") from error

_VERBS = {"counter": "inc", "up_down_counter": "inc", "gauge": "set", "histogram": "observe"}


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
    return hook_of(registry, lambda each: bound(each, registry), "prometheus()")


def bound(instrument: Instrument, registry: CollectorRegistry) -> Bind:
    """An instrument in a registry."""
    options: dict[str, Any] = {"registry": registry}
    if instrument.kind == "counter":
        kind: Any = Counter
    elif instrument.kind == "histogram":
        kind, options["buckets"] = Histogram, instrument.buckets
    else:
        kind, options["multiprocess_mode"] = Gauge, "livemax" if instrument.is_flag else "livesum"
    metric = kind(instrument.prometheus_name, instrument.description, instrument.labels, **options)
    verb = _VERBS[instrument.kind]

    def bind(labels: Labels) -> Record:
        child: Record = getattr(metric.labels(*labels) if labels else metric, verb)
        return child

    return bind
