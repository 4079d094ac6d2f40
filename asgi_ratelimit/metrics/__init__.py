"""Metrics for Prometheus and OpenTelemetry: hooks that count decisions, and measure the store and the queues.

Each needs its library, which is imported at first use: ``pip install "asgi-ratelimit-pacer[prometheus]"``, or
``[opentelemetry]``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .opentelemetry_backend import opentelemetry
    from .prometheus_backend import prometheus

__all__ = ["opentelemetry", "prometheus"]


def __getattr__(name: str) -> Any:
    """Import each at first use, so that neither needs the library of the other."""
    if name in __all__:
        return getattr(import_module(f".{name}_backend", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
