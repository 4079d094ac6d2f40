"""What is counted of each rule."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Scope

from asgi_ratelimit import Limiter, MemoryStore, Penalty, RateLimitMiddleware, RedisStore, Rule, Store
from asgi_ratelimit.counts import process_counts
from asgi_ratelimit.counts.minutes import BOUNDS_NS, RuleCounts, WaitTimes
from asgi_ratelimit.counts.process_counts import ADMITTED, Counts, counts_of
from asgi_ratelimit.decision import OnError
from asgi_ratelimit.testing import SteppedClock
from tests.support.asgi import Peer, http, ok

pytestmark = pytest.mark.anyio


async def ask(app: RateLimitMiddleware, path: str = "/", times: int = 1) -> None:
    """Send requests, whose answers do not matter."""
    for _ in range(times):
        peer = Peer()
        await app(http(path), peer.receive, peer.send)


def numbers(store: Store, name: str) -> tuple[int, ...]:
    """The counts of a rule: admitted, refused, shadowed, degraded, failed."""
    return tuple(counts_of(store).of_rule(name).numbers)


@pytest.mark.parametrize("hooks", [[], [lambda event: None]], ids=["fast", "with-hooks"])
async def test_one_quota_on_the_fast_way_and_the_other(store: Store, hooks: list[object]) -> None:
    """What is admitted and what is refused is counted alike with and without hooks."""
    app = RateLimitMiddleware(ok, "3/minute", store=store, name="api", hooks=hooks)  # type: ignore[arg-type]
    await ask(app, times=5)
    assert numbers(store, "api") == (3, 2, 0, 0, 0)


async def test_several_rules_count_for_themselves(store: Store) -> None:
    """An admitted request counts for all rules that it is charged to, a refused one for those that refuse it."""
    rules = [Rule("/login", "1/minute", name="login")]
    app = RateLimitMiddleware(ok, "10/minute", rules=rules, store=store, name="api")
    await ask(app, "/login", times=3)
    assert numbers(store, "api") == (1, 0, 0, 0, 0)
    assert numbers(store, "login") == (1, 2, 0, 0, 0)


async def test_a_shadow_rule(store: Store) -> None:
    """What a shadow rule would have refused is counted, and nothing of it is refused."""
    rules = [Rule("/", "1/minute", name="tight", shadow=True)]
    app = RateLimitMiddleware(ok, "10/minute", rules=rules, store=store, name="api")
    await ask(app, times=3)
    assert numbers(store, "tight") == (1, 0, 2, 0, 0)
    assert numbers(store, "api") == (3, 0, 0, 0, 0)


@pytest.mark.parametrize(("on_error", "counted"), [("local", (2, 1, 0, 3, 0)), ("deny", (0, 3, 0, 3, 0))])
async def test_what_is_decided_without_the_store(on_error: OnError, counted: tuple[int, ...]) -> None:
    """It counts as degraded, and as admitted or refused: also where all requests are refused."""
    store = RedisStore("redis://127.0.0.1:1", on_error=on_error)
    await ask(RateLimitMiddleware(ok, "2/minute", store=store, name="api"), times=3)
    assert numbers(store, "api") == counted
    await store.aclose()


async def test_a_block_counts_as_a_refusal(store: Store) -> None:
    """A blocked request is refused by the rule whose penalty it is."""
    app = RateLimitMiddleware(ok, "1/hour", store=store, name="api", penalty=Penalty("1 day"))
    await ask(app, times=6)
    assert numbers(store, "api") == (1, 5, 0, 0, 0)


async def test_a_function_that_fails(clock: SteppedClock) -> None:
    """A key function that raises is counted for its rule, beside the decision."""

    def key(connection: object) -> str:
        raise KeyError("x-api-key")

    store = MemoryStore(clock=clock)
    app = RateLimitMiddleware(ok, "10/minute", key=key, store=store, name="api")
    await ask(app, times=2)
    assert numbers(store, "api") == (2, 0, 0, 0, 2)


async def test_a_limiter(store: Store) -> None:
    """The decisions of a limiter count under its name."""
    limiter = Limiter("2/minute", store=store, name="mails")
    for _ in range(3):
        await limiter.rate_limit("ann")
    assert numbers(store, "mails") == (2, 1, 0, 0, 0)


async def test_stores_are_counted_apart(clock: SteppedClock) -> None:
    """Two stores have nothing in common, and the same store always has the same counts."""
    one, other = MemoryStore(clock=clock), MemoryStore(clock=clock)
    await Limiter("2/minute", store=one, name="mails").rate_limit("ann")
    assert counts_of(one) is counts_of(one)
    assert numbers(one, "mails")[0] == 1
    assert numbers(other, "mails")[0] == 0


async def test_what_is_remembered_is_bounded(clock: SteppedClock) -> None:
    """However many clients come before anybody publishes, the buckets of the latest alone are remembered."""
    store = MemoryStore(clock=clock)
    app = RateLimitMiddleware(ok, "1/minute", store=store, name="api", key=_path)
    await ask(app, "/once")
    for number in range(5000):
        await ask(app, f"/{number}")
    counts = counts_of(store).of_rule("api")
    assert len(counts.requests) == 1024
    assert counts.numbers[ADMITTED] == 5001


def _path(connection: object) -> str:
    scope: Scope = connection.scope  # type: ignore[attr-defined]
    path: str = scope["path"]
    return path


def test_two_threads_may_count_the_first_request_of_a_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither loses what the other one has counted."""
    counts = Counts(MemoryStore())

    def made() -> RuleCounts:
        monkeypatch.setattr(process_counts, "RuleCounts", RuleCounts)
        counts.of_rule("api").numbers[ADMITTED] += 1  # as if another thread came between
        return RuleCounts()

    monkeypatch.setattr(process_counts, "RuleCounts", made)
    counts.of_rule("api").numbers[ADMITTED] += 1
    assert counts.of_rule("api").numbers[ADMITTED] == 2


waits = st.lists(st.integers(0, 7_000_000_000), min_size=1)


def histogram(added: list[int]) -> WaitTimes:
    """A histogram of these waits."""
    times = WaitTimes()
    for wait_ns in added:
        times.add(wait_ns)
    return times


def test_nothing_was_waited_for() -> None:
    """Without waits, all is 0."""
    times = WaitTimes()
    assert (times.count, times.mean, times.quantile(0.99)) == (0, 0.0, 0.0)


@given(waits, st.floats(0.01, 1.0))
def test_a_quantile_is_within_the_part_of_the_exact_one(added: list[int], share: float) -> None:
    """It is never further from the exact quantile than the bounds around that."""
    exact = sorted(added)[math.ceil(share * len(added)) - 1]
    lower = max([bound for bound in BOUNDS_NS if bound <= exact], default=0)
    upper = min([bound for bound in BOUNDS_NS if bound > exact], default=BOUNDS_NS[-1])
    assert lower / 1e9 <= histogram(added).quantile(share) <= upper / 1e9


@given(waits, waits)
def test_histograms_add_up(one: list[int], other: list[int]) -> None:
    """The sum of two histograms is that of all their waits."""
    both = histogram(one)
    both.add_all(histogram(other))
    assert both == histogram([*one, *other])
    assert both.mean * both.count * 1e9 == pytest.approx(sum(one) + sum(other), abs=1e-3)
