"""What readers of OpenTelemetry's SDK have collected."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from opentelemetry.sdk.metrics.export import InMemoryMetricReader


def metrics_in(reader: InMemoryMetricReader) -> Iterator[Any]:
    """All metrics that a reader sees now."""
    data = reader.get_metrics_data()
    for resource in data.resource_metrics if data else ():
        for scope in resource.scope_metrics:
            yield from scope.metrics


def sums_of(reader: InMemoryMetricReader, name: str) -> dict[tuple[str, ...], float]:
    """The values of one metric by the values of its attributes."""
    points = [point for metric in metrics_in(reader) if metric.name == name for point in metric.data.data_points]
    return {tuple(point.attributes.values()): point.value for point in points}
