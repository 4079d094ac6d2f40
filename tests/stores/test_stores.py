"""The contract of all stores, run over each of them on a clock that is stepped by hand."""

from __future__ import annotations

import math

import pytest

from asgi_ratelimit.decision import Charge, Condition, Decision, Take
from asgi_ratelimit.errors import ConfigurationError
from asgi_ratelimit.limiter import Limiter
from asgi_ratelimit.quotas import MAX_CHARGES, TokenBucket
from asgi_ratelimit.stores import MemoryStore, RedisStore, Store, open_store, settle
from asgi_ratelimit.stores.urls import shown
from asgi_ratelimit.testing import SteppedClock

pytestmark = pytest.mark.anyio

EVEN = TokenBucket(10, burst=1, name="even")  # one unit in 100 ms
THREE = TokenBucket(10, burst=3, name="three")
HOURLY = TokenBucket(1, 3600, name="hourly")


async def take(store: Store, *charges: Charge, max_wait: float = 0.0) -> Decision:
    return (await store.take([Take(charges, max_wait)]))[0]


async def peek(store: Store, *charges: Charge, max_wait: float = 0.0) -> Decision:
    return await store.peek(Take(charges, max_wait))


async def replay(store: Store, clock: SteppedClock, at_ms: list[float], take: Take) -> list[Decision]:
    """The decisions of one take that is sent at these milliseconds."""
    start, decisions = clock.now, []
    for at in at_ms:
        clock.move_to(start + at / 1000)
        decisions += await store.take([take])
    return decisions


async def test_pacing_books_evenly_spaced_slots(store: Store, clock: SteppedClock) -> None:
    """Calls that come every 10 ms go 100 ms apart, and one that comes when all are gone goes at once."""
    decisions = await replay(store, clock, [0, 10, 20, 30, 1230], Take((Charge(EVEN, "key"),), math.inf))
    assert [decision.delay for decision in decisions] == [0.0, 0.09, 0.18, 0.27, 0.0]
    assert all(decision.allowed for decision in decisions)


async def test_rate_limiting_says_when_to_come_back(store: Store, clock: SteppedClock) -> None:
    """Each refusal reports the time that remains, and repeating the take does not make it longer."""
    decisions = await replay(store, clock, [0, 10, 10, 20, 99, 101], Take((Charge(EVEN, "key"),)))
    assert [decision.retry_after for decision in decisions] == [0.0, 0.09, 0.09, 0.08, 0.001, 0.0]
    assert [decision.allowed for decision in decisions] == [True, False, False, False, False, True]


async def test_a_burst_passes_at_once(store: Store) -> None:
    """Then the next unit is 100 ms away."""
    decisions = [await take(store, Charge(THREE, "key")) for _ in range(4)]
    assert [decision.allowed for decision in decisions] == [True, True, True, False]
    assert [decision.remaining for decision in decisions] == [2, 1, 0, 0]
    assert decisions[3].retry_after == 0.1


async def test_pacing_after_a_burst(store: Store) -> None:
    """The burst goes at once, and slots follow."""
    decisions = [await take(store, Charge(THREE, "key"), max_wait=math.inf) for _ in range(5)]
    assert [decision.delay for decision in decisions] == [0.0, 0.0, 0.0, 0.1, 0.2]


async def test_a_slot_too_far_away_is_not_booked(store: Store) -> None:
    """``retry_after`` is how much too far it is, and a caller with a longer ``max_wait`` gets the slot."""
    await take(store, Charge(EVEN, "key"))
    refused = await take(store, Charge(EVEN, "key"), max_wait=0.08)
    assert (refused.allowed, refused.retry_after) == (False, 0.02)
    assert (await take(store, Charge(EVEN, "key"), max_wait=0.1)).delay == 0.1


async def test_a_decision_is_complete(store: Store, clock: SteppedClock) -> None:
    """It has all that headers, logs and callers that sleep need."""
    decision = await take(store, Charge(THREE, "key", 2))
    assert (decision.allowed, decision.granted, decision.delay, decision.retry_after) == (True, 2, 0.0, 0.0)
    assert (decision.remaining, decision.reset_after, decision.ready_at) == (1, 0.2, clock.now)
    assert (decision.quota, decision.degraded, decision.shadow) == (THREE, False, False)
    assert decision.take == Take((Charge(THREE, "key", 2),))


@pytest.mark.parametrize("max_wait", [0.0, 0.05])
async def test_a_second_quota_that_refuses_leaves_the_first_unchanged(store: Store, max_wait: float) -> None:
    """All or nothing: a refused request takes nothing anywhere."""
    await take(store, Charge(EVEN, "key"))
    refused = await take(store, Charge(THREE, "key"), Charge(EVEN, "key"), max_wait=max_wait)
    assert (refused.allowed, refused.quota, refused.granted) == (False, EVEN, 0)
    assert [(state.allowed, state.remaining) for state in refused.states] == [(True, 3), (False, 0)]
    assert (await peek(store, Charge(THREE, "key"))).remaining == 3


async def test_a_second_key_that_refuses_leaves_the_first_unchanged(store: Store) -> None:
    """All charges of a take are decided as one, whatever their keys."""
    await take(store, Charge(HOURLY, "guild"))
    assert not (await take(store, Charge(HOURLY, "user"), Charge(HOURLY, "guild"))).allowed
    assert (await take(store, Charge(HOURLY, "user"))).allowed


async def test_charges_of_a_take_are_booked_at_one_moment(store: Store) -> None:
    """The longest wait applies to all of them."""
    await take(store, Charge(EVEN, "key"))
    decision = await take(store, Charge(THREE, "key"), Charge(EVEN, "key"), max_wait=1.0)
    assert decision.delay == 0.1
    assert (await peek(store, Charge(THREE, "key"))).reset_after == 0.4  # nobody takes what is free before the slot


async def test_the_takes_of_one_call_see_each_other(store: Store) -> None:
    """They are decided in their order, and a refused one in between changes nothing for the next."""
    costs = [1, 3, 2, 1]
    decisions = await store.take([Take((Charge(THREE, "key", cost),)) for cost in costs])
    assert [decision.allowed for decision in decisions] == [True, False, True, False]
    assert [decision.remaining for decision in decisions] == [2, 2, 0, 0]


async def test_a_call_without_takes_is_answered_with_nothing(store: Store) -> None:
    """There is nothing to decide."""
    assert await store.take([]) == []


async def test_a_peek_takes_nothing(store: Store) -> None:
    """However often, for a cost that fits and for one that does not."""
    assert [(await peek(store, Charge(THREE, "key", 2))).allowed for _ in range(5)] == [True] * 5
    assert (await take(store, Charge(THREE, "key", 2))).remaining == 1
    refused = [await peek(store, Charge(THREE, "key", 2)) for _ in range(5)]
    assert [(decision.allowed, decision.remaining, decision.retry_after) for decision in refused] == [
        (False, 1, 0.1)
    ] * 5


async def test_a_peek_says_what_a_take_would(store: Store) -> None:
    """For pacing, too: the delay that a take would have been given."""
    await take(store, Charge(EVEN, "key"))
    assert (await peek(store, Charge(EVEN, "key"), max_wait=1)).delay == 0.1
    assert (await peek(store, Charge(EVEN, "key", 5))).retry_after == math.inf


async def test_a_reset_forgets(store: Store) -> None:
    """It forgets the named buckets and no others; one that was never used is no error."""
    for quota, key in [(HOURLY, "a"), (HOURLY, "b"), (EVEN, "a")]:
        await take(store, Charge(quota, key))
    await store.reset([Charge(HOURLY, "a"), Charge(HOURLY, "unknown")])
    assert (await take(store, Charge(HOURLY, "a"))).allowed
    assert not (await take(store, Charge(HOURLY, "b"))).allowed
    assert not (await take(store, Charge(EVEN, "a"))).allowed


KEYS: list[str | bytes] = [
    "",
    "\0",
    "0",
    "a",
    "A",
    "a:b",
    "a:b:c",
    "{a}",
    "{",
    "}",
    "{}",
    "%",
    "%7B",
    "%#",
    "a b",
    "a\r\nb",
    "ä",
    "a\u0308",
    "\U0001f600",
    "\ud800",
    b"\xff",
    b"\xff\xfe",
    "\xff",
    "k" * 128,
    "k" * 129,
    "k" * 10_000,
    "k" * 10_001,
    "ä" * 64,
    "ä" * 65,
    "\ud800" * 5_000,
]


async def test_keys_of_any_content_are_apart(store: Store) -> None:
    """Whatever a key contains, and however long it is, it has a bucket of its own."""
    limiter = Limiter(HOURLY, store=store)
    assert [(await limiter.rate_limit(key)).allowed for key in KEYS] == [True] * len(KEYS)
    assert [(await limiter.rate_limit(key)).allowed for key in KEYS] == [False] * len(KEYS)


async def test_names_of_any_content_are_apart(store: Store) -> None:
    """No part of a bucket runs into the next one."""
    parts = [
        ("a", "b", "c"),
        ("a:b", "c", ""),
        ("a", "b:c", ""),
        ("a", "b", ":c"),
        ("a:b", "c", "c"),
        ("{a}", "b", "c"),
    ]
    charges = [Charge(TokenBucket(1, 3600, name=quota), key, 1, name) for name, quota, key in parts]
    decisions = await store.take([Take((charge,)) for charge in charges + charges])
    assert [decision.allowed for decision in decisions] == [True] * 6 + [False] * 6


async def test_a_changed_limit_keeps_what_was_used(store: Store) -> None:
    """A deployment with other numbers grants no second burst."""
    await take(store, Charge(TokenBucket(10, 60), "key", 6))
    assert (await take(store, Charge(TokenBucket(20, 60), "key", 1))).remaining == 13
    assert not (await take(store, Charge(TokenBucket(5, 60), "key", 1))).allowed


async def test_a_changed_period_keeps_what_was_used(store: Store) -> None:
    """The same units are used under another period, and those of the new version count in the old one."""
    await take(store, Charge(TokenBucket(10, 60, name="reads"), "key", 6))
    assert (await take(store, Charge(TokenBucket(10, 30, name="reads"), "key", 1))).remaining == 3
    assert (await take(store, Charge(TokenBucket(10, 60, name="reads"), "key", 1))).remaining == 2


async def test_a_take_may_have_many_charges(store: Store) -> None:
    """As many charges as it may have are still one take, all or nothing."""
    charges = [Charge(HOURLY, f"key {number}") for number in range(MAX_CHARGES)]
    assert (await take(store, *charges)).allowed
    assert not (await take(store, charges[-1], Charge(HOURLY, "key"))).allowed
    assert (await peek(store, Charge(HOURLY, "key"))).remaining == 1


async def test_a_take_may_have_many_quotas(store: Store) -> None:
    """Each with a bucket of its own."""
    charges = [Charge(TokenBucket(1, 3600, name=f"quota {number}"), "key") for number in range(MAX_CHARGES)]
    assert (await take(store, *charges)).allowed
    assert not (await take(store, charges[-1], Charge(HOURLY, "key"))).allowed
    assert (await peek(store, Charge(HOURLY, "key"))).remaining == 1


async def test_a_call_may_have_many_takes(store: Store) -> None:
    """Hundreds of them, each with a quota of its own."""
    charges = [Charge(TokenBucket(number + 1, 3600, name=f"quota {number}"), "key") for number in range(300)]
    decisions = await store.take([Take((charge,)) for charge in charges])
    assert [decision.remaining for decision in decisions] == list(range(300))


async def test_a_store_can_be_used_again_after_it_was_closed(store: Store) -> None:
    """Closing drops connections, not states; closing twice is no error."""
    await take(store, Charge(HOURLY, "key"))
    await store.aclose()
    await store.aclose()
    assert not (await take(store, Charge(HOURLY, "key"))).allowed


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("memory://", MemoryStore),
        ("redis://localhost:6379/0", RedisStore),
        ("rediss://user:password@localhost:6380", RedisStore),
        ("unix:///run/redis.sock", RedisStore),
    ],
)
def test_a_url_names_a_store(url: str, kind: type) -> None:
    """The scheme names the kind; nothing is connected yet."""
    assert type(open_store(url)) is kind


@pytest.mark.parametrize("url", ["", "redis", "memory", "redis:localhost", "http://localhost", "memcached://h", "://"])
def test_a_url_that_names_no_store(url: str) -> None:
    """The error quotes it, without what may be a password, and shows valid ones."""
    with pytest.raises(ConfigurationError, match=r"memory://.*redis://") as raised:
        open_store(url)
    assert shown(url) in str(raised.value)


def test_options_of_a_url_go_to_the_store() -> None:
    """Each kind takes its own."""
    assert "max_keys=5" in repr(open_store("memory://", max_keys=5))
    assert "timeout=1.5" in repr(open_store("redis://localhost", timeout=1.5, prefix="p"))


# Conditions


async def test_a_condition_is_waited_for_and_writes_nothing(store: Store, clock: SteppedClock) -> None:
    """A take with it has its slot when both buckets allow it; the bucket of the condition stays as it is."""
    paused = Condition(EVEN, "pause")
    await take(store, Charge(EVEN, "pause", 5), max_wait=1.0)
    decision = await take(store, Charge(THREE, "key"), paused, max_wait=1.0)
    assert (decision.allowed, decision.delay, decision.granted) == (True, 0.4, 1)
    clock.advance(0.1)
    refused = await take(store, Charge(THREE, "other"), paused)
    assert (refused.allowed, refused.retry_after) == (False, 0.3)
    assert (await peek(store, Charge(EVEN, "pause", 1))).retry_after == 0.4
    clock.advance(0.3)
    assert (await take(store, Charge(THREE, "other"), paused)).delay == 0.0


async def test_a_condition_of_an_unused_bucket_holds(store: Store) -> None:
    """And makes no bucket."""
    decision = await take(store, Charge(THREE, "key"), Condition(EVEN, "new"))
    assert (decision.allowed, decision.delay) == (True, 0.0)
    assert (await take(store, Charge(EVEN, "new"))).allowed


async def test_a_take_with_a_condition_is_given_back_without_it(store: Store) -> None:
    """All of it."""
    decision = await take(store, Charge(EVEN, "key"), Condition(EVEN, "pause"))
    await settle(store, decision, [0.0, 0.0])
    assert (await take(store, Charge(EVEN, "key"), Condition(EVEN, "pause"))).allowed


def test_a_charge_of_nothing_is_refused() -> None:
    """Only a condition may cost nothing."""
    with pytest.raises(ValueError, match="cost must be a finite number above 0"):
        Charge(EVEN, "key", 0)
