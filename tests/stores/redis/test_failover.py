"""Who decides while the store is out."""

from __future__ import annotations

from typing import Any

import pytest

from asgi_ratelimit.decision import Charge, Decision, Take
from asgi_ratelimit.errors import ConfigurationError, StoreTimeout
from asgi_ratelimit.quotas import FixedWindow, Quota, RollingWindow, TokenBucket
from asgi_ratelimit.stores.redis.outage.local_decisions import Failover
from asgi_ratelimit.testing import SteppedClock

pytestmark = pytest.mark.anyio

QUOTA = TokenBucket(20, 3600)


async def ask(failover: Failover, *charges: Charge, max_wait: float = 0.0) -> Decision:
    failover.out(StoreTimeout("too late"))
    return failover.decide(Take(charges, max_wait))


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
async def test_local_admits_a_share(quota: Quota, replicas: int, admitted: int) -> None:
    """The limits are divided by the number of processes, each of which lets one through at least."""
    failover = Failover("local", replicas, SteppedClock())
    decisions = [await ask(failover, Charge(quota, "key")) for _ in range(30)]
    assert sum(decision.allowed for decision in decisions) == admitted
    assert all(decision.degraded for decision in decisions)


async def test_a_share_is_worked_out_once() -> None:
    """What is known of a quota, its headers for one, is found by the quota itself."""
    failover = Failover("local", 4, SteppedClock())
    first, second = [await ask(failover, Charge(QUOTA, key)) for key in ("key", "other")]
    assert first.quota is second.quota


async def test_local_earns_back_at_a_share_of_the_rate() -> None:
    """Four processes together have the rate of the one store."""
    decision = await ask(Failover("local", 4, SteppedClock()), Charge(QUOTA, "key"))
    assert decision.reset_after == 4 * 3600 / 20


async def test_local_paces() -> None:
    """Slots are booked here, for the time being."""
    failover = Failover("local", 1, SteppedClock())
    even = TokenBucket(10, burst=1)
    assert [(await ask(failover, Charge(even, "key"), max_wait=9)).delay for _ in range(3)] == [0.0, 0.1, 0.2]


async def test_allow_lets_everything_through() -> None:
    """Even what could never pass, at once."""
    decision = await ask(Failover("allow", 1, SteppedClock()), Charge(QUOTA, "key", 1000))
    assert (decision.allowed, decision.granted, decision.delay, decision.retry_after) == (True, 1000, 0.0, 0.0)
    assert decision.degraded


async def test_deny_refuses_everything() -> None:
    """It may be tried again in a second."""
    decision = await ask(Failover("deny", 1, SteppedClock()), Charge(QUOTA, "key"), max_wait=5)
    assert (decision.allowed, decision.granted, decision.delay, decision.retry_after) == (False, 0, 0.0, 1.0)
    assert decision.degraded


@pytest.mark.parametrize("on_error", ["local", "allow", "deny"])
async def test_there_is_one_line_for_each_transition(on_error: Any, caplog: pytest.LogCaptureFixture) -> None:
    """It says what decides now, and why; another says when that is over."""
    failover = Failover(on_error, 1, SteppedClock())
    for _ in range(2):
        failover.back()
        for _ in range(3):
            await ask(failover, Charge(QUOTA, "key"))
    levels = [record.levelname for record in caplog.records]
    assert levels == ["ERROR", "WARNING", "ERROR"]
    assert repr(on_error) in caplog.messages[0]
    assert "too late" in caplog.messages[0]


@pytest.mark.parametrize(
    ("on_error", "replicas", "said"),
    [("ignore", 1, "on_error must be"), (None, 1, "on_error must be"), ("local", 0, "replicas must be")],
)
def test_words_that_mean_nothing(on_error: Any, replicas: int, said: str) -> None:
    """They are refused at start-up."""
    with pytest.raises(ConfigurationError, match=said):
        Failover(on_error, replicas, SteppedClock())
