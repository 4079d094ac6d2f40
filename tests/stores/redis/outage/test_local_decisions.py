"""Decisions while the store is out."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from asgi_ratelimit.stores.redis.outage.local_decisions import LocalDecisions

from asgi_ratelimit.algorithms import pack
from asgi_ratelimit.decision import Charge, Decision, Take
from asgi_ratelimit.errors import ConfigurationError, StoreError, StoreTimeout, StoreUnavailable
from asgi_ratelimit.quotas import FixedWindow, Quota, RollingWindow, TokenBucket
from asgi_ratelimit.stores import MemoryStore
from asgi_ratelimit.stores.redis.outage import local_decisions as module
from asgi_ratelimit.testing import SteppedClock
from asgi_ratelimit.waiting import as_refused, pace_timeout

QUOTA = TokenBucket(20, 3600)


def decide(local: LocalDecisions, *charges: Charge, max_wait: float = 0.0) -> Decision:
    local.store_is_out(StoreTimeout("too late"))
    return local.decide(Take(charges, max_wait))


@pytest.mark.parametrize(
    ("quota", "replicas", "admitted"),
    [
        (TokenBucket(20, 3600), 1, 20),
        (TokenBucket(20, 3600), 4, 5),
        (TokenBucket(20, 3600, burst=40), 4, 10),
        (TokenBucket(20, 3600), 100, 1),
        (FixedWindow(20, 3600), 4, 5),
        (RollingWindow(20, 3600), 4, 5),
        (FixedWindow(2, 3600), 4, 1),
    ],
    ids=repr,
)
def test_local_admits_a_share(quota: Quota, replicas: int, admitted: int) -> None:
    """The limits are divided by the number of processes; each admits at least one unit."""
    local = LocalDecisions("local", replicas, SteppedClock())
    decisions = [decide(local, Charge(quota, "key")) for _ in range(30)]
    assert sum(decision.allowed for decision in decisions) == admitted
    assert all(decision.degraded for decision in decisions)


@pytest.mark.parametrize(
    ("on_error", "what"),
    [
        ("local", "each process now limits by itself"),
        ("allow", "every request now passes"),
        ("deny", "every request is now refused"),
    ],
)
def test_the_log_says_what_happens_meanwhile(on_error: Any, what: str, caplog: pytest.LogCaptureFixture) -> None:
    """In plain words, with the option, which a limit may have for itself."""
    LocalDecisions(on_error, 1, SteppedClock()).store_is_out(StoreTimeout("too late"))
    text = f"the rate limit store is out; {what} (on_error={on_error!r}, unless a limit has its own): too late"
    assert caplog.messages == [text]


@pytest.mark.parametrize("quota", [TokenBucket(10, 60), FixedWindow(10, 60), RollingWindow(10, 60)], ids=repr)
def test_a_take_that_fits_the_quota_fits_a_share_now_and_then(quota: Quota) -> None:
    """A share is at least one take, if the whole quota can grant it; what it can not is never granted."""
    clock = SteppedClock(0)
    local = LocalDecisions("local", 4, clock)
    first, second = [decide(local, Charge(quota, "key", 5)) for _ in range(2)]
    assert (first.allowed, second.allowed) == (True, False)
    clock.advance(second.retry_after)
    assert decide(local, Charge(quota, "key", 5)).allowed
    assert decide(local, Charge(quota, "other", 11)).retry_after == float("inf")
    assert not local.decide(Take((Charge(quota, "part", 5),), best_effort=True)).granted > 2.5


@pytest.mark.parametrize("costs", [[5], [2.5, 10], [1, 2, 5, 10], [1, 10]], ids=repr)
@pytest.mark.parametrize("kind", [TokenBucket, FixedWindow, RollingWindow])
def test_takes_above_a_share_keep_near_the_quota(kind: type[Quota], costs: list[float]) -> None:
    """A token bucket keeps to its share of the rate, a window to one take or its share in each period."""
    clock, draw, admitted = SteppedClock(0), Random(1), 0.0
    local, quota = LocalDecisions("local", 4, clock), kind(10, 60)
    for _ in range(1800):
        cost = draw.choice(costs)
        admitted += decide(local, Charge(quota, "key", cost)).granted
        clock.advance(1)
    most = 2.5 * 30 + max(costs) if kind is TokenBucket else max(costs) * (30 + 1)
    assert admitted <= most


def test_all_that_was_granted_above_a_share_is_repaid() -> None:
    """Also where the first takes were below it."""
    clock = SteppedClock(0)
    local, quota = LocalDecisions("local", 4, clock), FixedWindow(10, 60)
    assert decide(local, Charge(quota, "key", 1)).allowed
    clock.advance(60)
    assert decide(local, Charge(quota, "key", 5)).allowed
    (repayment,) = local.ledger.collect(lambda _: True)
    assert [charge.cost for charge in repayment.charges] == [5]


@pytest.mark.parametrize(
    ("on_error", "cost", "text"),
    [
        (
            "local",
            5,
            "the next slot of 'default' for 'key' is 60 s away, max_delay is 1 s; the store is out, and this process",
        ),
        ("local", 11, "no slot of 'default' for 'key', ever: the cost is above what \"10/minute fixed\" can give"),
        ("deny", 5, "no slot of 'default' for 'key': the store is out, and its on_error refuses"),
    ],
)
def test_a_refusal_says_why(on_error: Any, cost: float, text: str) -> None:
    """Whether the store's ``on_error`` refuses, or the share of a process."""
    local, quota = LocalDecisions(on_error, 4, SteppedClock(0)), FixedWindow(10, 60)
    take = Take((Charge(quota, "key", cost),), 1.0)
    local.decide(replace(take, max_wait=0.0))
    decision = local.decide(take)
    assert str(pace_timeout(take, as_refused(decision, (decision.retry_after) * 1e6))).startswith(text)


def test_a_share_is_computed_once() -> None:
    """Takes of one quota have shares that are the same object, which is what caches of quotas look up fastest."""
    local = LocalDecisions("local", 4, SteppedClock())
    first, second = [decide(local, Charge(QUOTA, key)) for key in ("key", "other")]
    assert first.quota is second.quota


def test_local_earns_back_at_a_share_of_the_rate() -> None:
    """Four processes together have the rate of the store."""
    decision = decide(LocalDecisions("local", 4, SteppedClock()), Charge(QUOTA, "key"))
    assert decision.reset_after == 4 * 3600 / 20


def test_local_paces() -> None:
    """Slots are booked in this process."""
    local = LocalDecisions("local", 1, SteppedClock())
    even = TokenBucket(10, burst=1)
    assert [(decide(local, Charge(even, "key"), max_wait=9)).delay for _ in range(3)] == [0.0, 0.1, 0.2]


def test_local_repeats_operations() -> None:
    """The second decision says when it was repeated."""
    clock = SteppedClock()
    local = LocalDecisions("local", 1, clock)
    first, again = [local.decide(Take((Charge(TokenBucket(10), "key"),), operation="id")) for _ in range(2)]
    assert (first.repeated_us, again.repeated_us) == (None, float(clock.now_us()))


def test_allow_admits_every_take() -> None:
    """Even one that could never pass, at once."""
    decision = decide(LocalDecisions("allow", 1, SteppedClock(5)), Charge(QUOTA, "key", 1000))
    assert decision.ready_at == 5.0
    assert (decision.allowed, decision.granted, decision.delay, decision.retry_after) == (True, 1000, 0.0, 0.0)
    assert decision.degraded


def test_deny_refuses_every_take() -> None:
    """``retry_after`` is a second."""
    decision = decide(LocalDecisions("deny", 1, SteppedClock()), Charge(QUOTA, "key"), max_wait=5)
    assert (decision.allowed, decision.granted, decision.delay, decision.retry_after) == (False, 0, 0.0, 1.0)
    assert decision.degraded


@pytest.mark.parametrize("on_error", ["local", "allow", "deny"])
def test_each_transition_is_logged_once(on_error: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The record says what decides now, and why; another one says that the store is back."""
    local = LocalDecisions(on_error, 1, SteppedClock())
    for _ in range(2):
        local.store_is_back()
        for _ in range(3):
            decide(local, Charge(QUOTA, "key"))
    levels = [record.levelname for record in caplog.records]
    assert levels == ["ERROR", "WARNING", "ERROR"]
    assert f"(on_error={on_error!r}, unless a limit has its own)" in caplog.messages[0]
    assert "too late" in caplog.messages[0]


@pytest.mark.parametrize(
    ("on_error", "replicas", "message"),
    [("ignore", 1, "on_error must be"), (None, 1, "on_error must be"), ("local", 0, "replicas must be")],
)
def test_invalid_options(on_error: Any, replicas: int, message: str) -> None:
    """They are rejected when the store is built."""
    with pytest.raises(ConfigurationError, match=message):
        LocalDecisions(on_error, replicas, SteppedClock())


def test_the_latest_values_of_the_store_count() -> None:
    """A bucket that was empty in the store is empty here, once."""
    local = LocalDecisions("local", 1, SteppedClock())
    local.latest_values.update(empty("key"))
    assert not decide(local, Charge(QUOTA, "key")).allowed
    assert decide(local, Charge(QUOTA, "other")).allowed


def test_old_values_are_forgotten() -> None:
    """Those before the latest ones: such a bucket starts full."""
    local = LocalDecisions("local", 1, SteppedClock())
    for number in range(4):
        local.latest_values.update(empty(f"key {number}"))
        if number % 2:
            local.forget_oldest_values()
    allowed = [decide(local, Charge(QUOTA, f"key {number}")).allowed for number in range(4)]
    assert allowed == [True, True, False, False]


def test_a_value_under_another_quota_counts() -> None:
    """What was used before limit and period were changed stays used, as it does in the store."""
    local = LocalDecisions("local", 1, SteppedClock())
    local.latest_values.update(empty("key", TokenBucket(10, 1800, name="per-hour")))
    assert decide(local, Charge(QUOTA, "key", 10)).allowed
    assert not decide(local, Charge(QUOTA, "key")).allowed


def empty(key: str, quota: TokenBucket = QUOTA) -> dict[str, bytes]:
    """The value of a bucket that has nothing left."""
    charge, store = Charge(quota, key, quota.burst), MemoryStore(clock=SteppedClock())
    assert store.submit(Take((charge,))).allowed
    state = store.state_of(charge)
    assert state is not None
    return {charge.bucket: pack(quota, state)}


# The log


def test_each_new_reason_of_an_outage_is_logged(caplog: pytest.LogCaptureFixture, monkeypatch: Any) -> None:
    """When it comes, and once more after a minute; each outage begins and ends with a record of its own."""
    minutes = [0.0]
    monkeypatch.setattr(module, "monotonic_us", lambda: minutes[0] * 60e6)
    local = LocalDecisions("local", 1, SteppedClock())
    refused, late = StoreUnavailable("refused"), StoreTimeout("too late")

    def logged(*errors: StoreError, node: str = "") -> list[str]:
        caplog.clear()
        for error in errors:
            local.store_is_out(error, node)
        return [record.getMessage().rpartition(": ")[2] for record in caplog.records]

    assert logged(refused, refused, late, refused, late) == ["refused", "too late"]
    assert logged(refused, node="a:1") == ["refused"]
    minutes[0] = 0.99
    assert logged(refused, late) == []
    minutes[0] = 1.0
    assert logged(late, late, refused, StoreError("NOPERM")) == ["too late", "refused", "NOPERM"]
    local.store_is_back()
    assert [record.levelname for record in caplog.records][-1] == "WARNING"
    assert logged(refused, refused, late) == ["refused"]
