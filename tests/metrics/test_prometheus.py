"""Metrics for Prometheus, as its own library exposes them."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client import REGISTRY, CollectorRegistry, generate_latest

from asgi_ratelimit import ConfigurationError, Limiter, Rule
from asgi_ratelimit.hooks import StoreCall
from asgi_ratelimit.metrics import prometheus
from tests.support.asgi import ask, http, limited, ok

pytestmark = pytest.mark.anyio


async def test_decisions_are_exposed() -> None:
    """With the names and labels of the docs, in the registry that was given."""
    registry = CollectorRegistry()
    hook = prometheus(registry)
    app = limited(ok, rules=[Rule("/login", "1/hour", name="login")], hooks=[hook])
    for _ in range(3):
        await ask(app, http("/login"))
    requests = {
        result: registry.get_sample_value(
            "asgi_ratelimit_requests_total", {"rule": "login", "quota": "per-hour", "result": result}
        )
        for result in ("allowed", "refused")
    }
    assert requests == {"allowed": 1.0, "refused": 2.0}
    assert registry.get_sample_value("asgi_ratelimit_take_duration_seconds_count") == 3.0
    text = generate_latest(registry).decode()
    assert "192.0.2.1" not in text
    assert "# TYPE asgi_ratelimit_requests_total counter" in text


async def test_queues_and_the_store_are_exposed() -> None:
    """As gauges and histograms."""
    registry = CollectorRegistry()
    hook: Any = prometheus(registry)
    limiter = Limiter("100/s", name="jobs", hooks=[hook])
    await limiter.acquire("alice")
    hook.queued("jobs", 1)
    hook.store_called(StoreCall("rl", 5, 0.004, None, True, 3))
    values = {
        name: registry.get_sample_value(f"asgi_ratelimit_{name}", labels)
        for name, labels in [
            ("queued_requests", {"name": "jobs"}),
            ("request_time_in_queue_seconds_count", {"name": "jobs"}),
            ("store_call_duration_seconds_sum", {"store": "rl", "outcome": "answered"}),
            ("store_batch_size_sum", {"store": "rl"}),
            ("degraded", {"store": "rl"}),
            ("outage_ledger_entries", {"store": "rl"}),
        ]
    }
    assert list(values.values()) == [1.0, 1.0, 0.004, 5.0, 1.0, 3.0], values


def test_one_registry_has_one_hook() -> None:
    """So several middlewares add up; the default is that of the library."""
    registry = CollectorRegistry()
    assert prometheus(registry) is prometheus(registry)
    assert prometheus(registry) is not prometheus(CollectorRegistry())
    assert prometheus() is prometheus(REGISTRY)


def test_what_is_no_registry_is_refused() -> None:
    """The error quotes it, and shows a valid call."""
    with pytest.raises(ConfigurationError, match=r"not 'metrics': prometheus\(\)"):
        prometheus("metrics")  # type: ignore[arg-type]
