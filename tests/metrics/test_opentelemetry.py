"""Metrics for OpenTelemetry, as the readers of its SDK collect them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from asgi_ratelimit import ConfigurationError, Limiter, Rule
from asgi_ratelimit.hooks import StoreCall
from asgi_ratelimit.metrics import opentelemetry
from asgi_ratelimit.metrics.metrics_hook import INSTRUMENTS
from tests.support.asgi import ask, http, limited, ok
from tests.support.telemetry import metrics_in, sums_of

pytestmark = pytest.mark.anyio


@pytest.fixture
def reader() -> InMemoryMetricReader:
    return InMemoryMetricReader()


@pytest.fixture
def provider(reader: InMemoryMetricReader) -> Iterator[MeterProvider]:
    made = MeterProvider([reader])
    yield made
    made.shutdown()


async def test_decisions_are_collected(reader: InMemoryMetricReader, provider: MeterProvider) -> None:
    """With the names and attributes of the docs."""
    app = limited(ok, rules=[Rule("/login", "1/hour", name="login")], hooks=[opentelemetry(provider)])
    for _ in range(3):
        await ask(app, http("/login"))
    assert sums_of(reader, "asgi_ratelimit.requests") == {
        ("login", "per-hour", "allowed"): 1,
        ("login", "per-hour", "refused"): 2,
    }


async def test_every_instrument_is_collected(reader: InMemoryMetricReader, provider: MeterProvider) -> None:
    """With its unit and description, and its own buckets."""
    hook: Any = opentelemetry(provider)
    limiter = Limiter("100/s", name="jobs", hooks=[hook])
    await limiter.rate_limit("alice")
    await limiter.acquire("alice")
    await ask(limited(ok, key=lambda request: 1 / 0, hooks=[hook]))
    hook.store_called(StoreCall("rl", 5, 0.004, OSError(), True, 3))
    collected = {metric.name: metric for metric in metrics_in(reader)}
    expected = {each.name: each for each in INSTRUMENTS if each.name != "asgi_ratelimit.degraded_requests"}
    assert {*collected} == {*expected}
    for name, instrument in expected.items():
        assert (collected[name].unit, collected[name].description) == (instrument.unit, instrument.description)
        for point in collected[name].data.data_points:
            assert {*point.attributes} == {*instrument.labels}
            if instrument.buckets:
                assert tuple(point.explicit_bounds) == instrument.buckets
    assert sums_of(reader, "asgi_ratelimit.outage_ledger.entries") == {("rl",): 3}
    assert sums_of(reader, "asgi_ratelimit.queued_requests") == {("jobs",): 0}


def test_one_provider_has_one_hook(provider: MeterProvider) -> None:
    """So several middlewares add up; without one it is the global one."""
    assert opentelemetry(provider) is opentelemetry(provider)
    assert opentelemetry() is opentelemetry()
    assert opentelemetry() is not opentelemetry(provider)


def test_what_is_no_provider_is_refused() -> None:
    """The error quotes it, and shows a valid call."""
    with pytest.raises(ConfigurationError, match=r"not 'metrics': opentelemetry\(\)"):
        opentelemetry("metrics")  # type: ignore[arg-type]
