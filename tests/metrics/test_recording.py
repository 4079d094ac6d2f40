"""What the metrics hook records, and that its series are bounded."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asgi_ratelimit import Limiter, MemoryStore, RedisStore, Rule
from asgi_ratelimit.hooks import StoreCall
from asgi_ratelimit.metrics import metrics_hook
from asgi_ratelimit.metrics.metrics_hook import BoundedSeries, Instrument, MetricsHook
from asgi_ratelimit.testing import SteppedClock
from tests.support.asgi import ask, http, limited, ok
from tests.support.visitors import Site, Visitor

pytestmark = pytest.mark.anyio


class Recorded:
    """What a hook has recorded, by instrument and labels, in order."""

    def __init__(self) -> None:
        self.values: defaultdict[str, list[tuple[tuple[str, ...], float]]] = defaultdict(list)
        self.hook = MetricsHook(self._bind, "recorded")

    def _bind(self, instrument: Instrument) -> Any:
        return lambda labels: lambda value: self.values[instrument.name].append((labels, value))

    def sums(self, name: str) -> dict[tuple[str, ...], float]:
        """The sum under each set of labels."""
        sums: Counter[tuple[str, ...]] = Counter()
        for labels, value in self.values[f"asgi_ratelimit.{name}"]:
            sums[labels] += value  # type: ignore[assignment]  # a counter of any number
        return dict(sums)

    def count(self, name: str) -> int:
        """How many values there are."""
        return len(self.values[f"asgi_ratelimit.{name}"])


async def test_decisions_are_counted_by_rule_quota_and_result() -> None:
    """Each once; the key and the path are in no label."""
    recorded = Recorded()
    rules = [Rule("/login", "2/hour", name="login"), Rule("/{any}", "1/hour", name="candidate", shadow=True)]
    app = limited(ok, rules=rules, hooks=[recorded.hook])
    for path in ("/login", "/login", "/login", "/other"):
        await ask(app, http(path))
    assert recorded.sums("requests") == {
        ("login", "per-hour", "allowed"): 2,
        ("login", "per-hour", "refused"): 1,
        ("default", "per-minute", "allowed"): 1,
        ("candidate", "per-hour", "allowed"): 1,
        ("candidate", "per-hour", "shadowed"): 3,
    }
    assert recorded.count("take.duration") == 4
    assert recorded.count("request.time_in_queue") == 0


def test_queues_are_measured_where_requests_wait() -> None:
    """How many wait, and how long those that have gone have waited; one that is refused at once only comes and goes."""
    recorded = Recorded()
    Site("2/s burst 1", max_delay=1.0, name="site", hooks=[recorded.hook]).run(*[Visitor() for _ in range(4)])
    assert recorded.count("queued_requests") == 6
    assert recorded.sums("queued_requests") == {("site",): 0}
    assert recorded.values["asgi_ratelimit.request.time_in_queue"] == [(("site",), 0.5), (("site",), 1.0)]


async def test_queues_of_callers_are_measured() -> None:
    """Of all that wait for slots: also those that are refused at once, or cancelled."""
    recorded = Recorded()
    limiter = Limiter("1/hour", name="jobs", store=MemoryStore(clock=SteppedClock()), hooks=[recorded.hook])
    await limiter.acquire("alice")
    with pytest.raises(TimeoutError):
        await limiter.acquire("alice", max_delay=1)
    with pytest.raises(TimeoutError):
        await limiter.spend("alice", 1, max_delay=1).__aenter__()
    assert recorded.sums("queued_requests") == {("jobs",): 0}
    assert recorded.count("queued_requests") == 6
    assert recorded.count("request.time_in_queue") == 3


async def test_failures_of_functions_are_counted() -> None:
    """By the rule and the argument."""
    recorded = Recorded()

    def key(request: Any) -> str:
        raise KeyError("user")

    await ask(limited(ok, key=key, hooks=[recorded.hook]))
    assert recorded.sums("function.failures") == {("default", "key"): 1}


def test_calls_of_the_store_are_measured() -> None:
    """Their time and size, whether the store is out, and the ledger."""
    recorded = Recorded()
    recorded.hook.store_called(StoreCall("rl", 64, 0.5, None, False, 0))
    recorded.hook.store_called(StoreCall("rl", 1, 0.25, OSError(), True, 7))
    assert recorded.sums("store.call.duration") == {("rl", "answered"): 0.5, ("rl", "failed"): 0.25}
    assert recorded.values["asgi_ratelimit.store.batch.size"] == [(("rl",), 64), (("rl",), 1)]
    assert recorded.values["asgi_ratelimit.degraded"] == [(("rl",), 0.0), (("rl",), 1.0)]
    assert recorded.values["asgi_ratelimit.outage_ledger.entries"] == [(("rl",), 0), (("rl",), 7)]


async def test_what_is_decided_without_the_store_is_counted() -> None:
    """Apart, by the rule."""
    recorded = Recorded()
    store = RedisStore("redis://127.0.0.1:1", prefix="shop")
    async with Limiter("5/hour", name="jobs", store=store, hooks=[recorded.hook]) as limiter:
        await limiter.rate_limit("alice")
    assert recorded.sums("requests") == {("jobs", "per-hour", "allowed"): 1}
    assert recorded.sums("degraded_requests") == {("jobs",): 1}


@given(st.lists(st.tuples(st.text(max_size=3), st.sampled_from(["allowed", "refused"])), max_size=60))
def test_series_are_always_bounded(decisions: list[tuple[str, str]]) -> None:
    """However many names there are, nothing is lost: what is too much is under ``other``, by its result."""
    recorded: Counter[tuple[str, ...]] = Counter()
    instrument = Instrument("x", "counter", "", "", ("rule", "result"))

    def bind(labels: tuple[str, ...]) -> Any:
        return lambda value: recorded.update({labels: value})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metrics_hook, "MAX_SERIES", 5)
        series = BoundedSeries(instrument, bind)
        for labels in decisions:
            series.record(1, *labels)
    assert len(recorded) <= 5 + 2
    assert recorded.total() == len(decisions)
    results = Counter(labels[-1] for labels in recorded.elements())
    assert results == Counter(result for _, result in decisions)
