"""Metrics for Prometheus and OpenTelemetry, as their own libraries expose them: all of the docs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import REGISTRY, CollectorRegistry, generate_latest

from asgi_ratelimit import ConfigurationError, Limiter, MemoryStore, RedisStore, Rule
from asgi_ratelimit.hooks import StoreCall
from asgi_ratelimit.metrics import INSTRUMENTS, Instrument, opentelemetry, prometheus
from asgi_ratelimit.testing import SteppedClock
from tests.support.asgi import ask, http, limited, ok
from tests.support.server import ROOT
from tests.support.telemetry import metrics_in, sums_of
from tests.support.visitors import Site, Visitor

pytestmark = pytest.mark.anyio

Samples = Callable[[str], dict[tuple[str, ...], float]]


@pytest.fixture
def reader() -> InMemoryMetricReader:
    return InMemoryMetricReader()


@pytest.fixture
def provider(reader: InMemoryMetricReader) -> Iterator[MeterProvider]:
    made = MeterProvider([reader])
    yield made
    made.shutdown()


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


def sampled(registry: CollectorRegistry, name: str) -> dict[tuple[str, ...], float]:
    """The samples of a metric by the values of their labels."""
    samples = [sample for family in registry.collect() for sample in family.samples]
    return {tuple(each.labels.values()): each.value for each in samples if each.name == f"asgi_ratelimit_{name}"}


@pytest.fixture(params=["prometheus", "opentelemetry"])
def exporter(
    request: pytest.FixtureRequest, registry: CollectorRegistry, reader: InMemoryMetricReader, provider: MeterProvider
) -> tuple[Any, Samples]:
    """A hook of each library in turn, and what is in a counter of it."""
    if request.param == "prometheus":
        return prometheus(registry), lambda name: sampled(registry, f"{name.replace('.', '_')}_total")
    return opentelemetry(provider), lambda name: sums_of(reader, f"asgi_ratelimit.{name}")


async def test_decisions_are_counted_by_rule_quota_and_result(exporter: tuple[Any, Samples]) -> None:
    """Each once, with the labels of the docs; the key and the path are in no label."""
    hook, samples = exporter
    rules = [Rule("/login", "2/hour", name="login"), Rule("/{any}", "1/hour", name="candidate", shadow=True)]
    app = limited(ok, rules=rules, hooks=[hook])
    for path in ("/login", "/login", "/login", "/other"):
        await ask(app, http(path))
    assert samples("requests") == {
        ("login", "per-hour", "allowed"): 2,
        ("login", "per-hour", "refused"): 1,
        ("default", "per-minute", "allowed"): 1,
        ("candidate", "per-hour", "allowed"): 1,
        ("candidate", "per-hour", "shadowed"): 3,
    }


async def test_failures_and_decisions_without_the_store_are_counted(exporter: tuple[Any, Samples]) -> None:
    """By the rule, and the argument that failed."""
    hook, samples = exporter
    await ask(limited(ok, key=lambda request: 1 / 0, hooks=[hook]))
    assert samples("function.failures") == {("default", "key"): 1}
    store = RedisStore("redis://127.0.0.1:1", prefix="shop")
    async with Limiter("5/hour", name="jobs", store=store, hooks=[hook]) as limiter:
        await limiter.rate_limit("alice")
    assert samples("requests")["jobs", "per-hour", "allowed"] == 1
    assert samples("degraded_requests") == {("jobs",): 1}


async def test_every_instrument_is_collected(reader: InMemoryMetricReader, provider: MeterProvider) -> None:
    """With its unit and description, and its own buckets."""
    hook: Any = opentelemetry(provider)
    for each in INSTRUMENTS:
        hook.record(each.short_name, 1, *each.labels)
    collected = {metric.name: metric for metric in metrics_in(reader)}
    assert [*collected] == [each.name for each in INSTRUMENTS]
    for instrument in INSTRUMENTS:
        metric = collected[instrument.name]
        assert (metric.unit, metric.description) == (instrument.unit, instrument.description)
        (point,) = metric.data.data_points
        assert {*point.attributes} == {*instrument.labels}
        assert not instrument.buckets or tuple(point.explicit_bounds) == instrument.buckets


async def test_calls_of_the_store_are_exposed(registry: CollectorRegistry) -> None:
    """Their time and size, whether the store is out, and the ledger."""
    hook: Any = prometheus(registry)
    hook.store_called(StoreCall("rl", 64, 0.5, None, False, 0))
    hook.store_called(StoreCall("rl", 1, 0.25, OSError(), True, 7))
    seconds = {("rl", "answered"): 0.5, ("rl", "failed"): 0.25}
    assert sampled(registry, "store_call_duration_seconds_sum") == seconds
    assert sampled(registry, "store_batch_size_sum") == {("rl",): 65}
    assert sampled(registry, "degraded") == {("rl",): 1}
    assert sampled(registry, "outage_ledger_entries") == {("rl",): 7}
    await ask(limited(ok, hooks=[hook]))
    assert sampled(registry, "take_duration_seconds_count") == {(): 1}
    text = generate_latest(registry).decode()
    assert "192.0.2.1" not in text
    assert "# TYPE asgi_ratelimit_requests_total counter" in text


def test_queues_of_requests_are_measured(registry: CollectorRegistry) -> None:
    """How long those that have gone have waited; one that is refused at once only comes and goes."""
    Site("2/s burst 1", max_delay=1.0, name="site", hooks=[prometheus(registry)]).run(*[Visitor() for _ in range(4)])
    assert sampled(registry, "queued_requests") == {("site",): 0}
    assert sampled(registry, "request_time_in_queue_seconds_sum") == {("site",): 1.5}


async def test_queues_of_callers_are_measured(registry: CollectorRegistry) -> None:
    """Of all that wait for slots: also those that are refused at once."""
    changes = list[int]()
    hook: Any = prometheus(registry)
    hook.queued, queued = lambda name, change: (changes.append(change), queued(name, change)), hook.queued
    limiter = Limiter("1/hour", name="jobs", store=MemoryStore(clock=SteppedClock()), hooks=[hook])
    await limiter.acquire("alice")
    with pytest.raises(TimeoutError):
        await limiter.acquire("alice", max_delay=1)
    with pytest.raises(TimeoutError):
        await limiter.spend("alice", 1, max_delay=1).__aenter__()
    assert changes == [1, -1] * 3
    assert sampled(registry, "queued_requests") == {("jobs",): 0}
    assert sampled(registry, "request_time_in_queue_seconds_count") == {("jobs",): 3}


def test_one_library_has_one_hook(registry: CollectorRegistry, provider: MeterProvider) -> None:
    """So several middlewares add up; the default is the global registry or provider."""
    assert prometheus(registry) is prometheus(registry)
    assert prometheus(registry) is not prometheus(CollectorRegistry())
    assert prometheus() is prometheus(REGISTRY)
    assert opentelemetry(provider) is opentelemetry(provider)
    assert opentelemetry() is opentelemetry()
    assert opentelemetry() is not opentelemetry(provider)


@pytest.mark.parametrize("make", [prometheus, opentelemetry])
def test_what_is_no_registry_or_provider_is_refused(make: Any) -> None:
    """The error quotes it, and shows a valid call."""
    with pytest.raises(ConfigurationError, match=rf"not 'metrics': {make.__name__}\(\)"):
        make("metrics")


ROW = re.compile(r"^\| `(asgi_ratelimit\.[\w.]+)` \| `(\w+)` \| ([\w -]+?)(?: \(gauge\))? \| ([^|]*)\|", re.MULTILINE)


def row_of(instrument: Instrument) -> tuple[str, str, str, str]:
    """What the table in the docs says of it."""
    kind = instrument.kind.replace("up_down_", "up-down ")
    return instrument.name, instrument.prometheus_name, kind, ", ".join(f"`{label}`" for label in instrument.labels)


def test_the_docs_list_all_instruments() -> None:
    """With their names for both, their kinds and labels, in this order."""
    rows = ROW.findall((ROOT / "docs/metrics.md").read_text("utf-8"))
    assert [tuple(map(str.strip, row)) for row in rows] == [*map(row_of, INSTRUMENTS)]
