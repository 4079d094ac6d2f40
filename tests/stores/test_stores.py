"""What every store promises: one contract, run over each of them on a clock that is stepped by hand."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TypeAlias

import pytest
import redis
from hypothesis import given, settings
from hypothesis import strategies as st

from asgi_ratelimit.algorithms import settlement_of
from asgi_ratelimit.decision import Charge, Decision, Take
from asgi_ratelimit.errors import ConfigurationError
from asgi_ratelimit.limiter import Limiter
from asgi_ratelimit.quotas import FixedWindow, Quota, RollingWindow, TokenBucket
from asgi_ratelimit.stores import MemoryStore, RedisStore, Store, open_store
from asgi_ratelimit.testing import SteppedClock
from tests.support.redis_server import RedisServer
from tests.support.strategies import WAITS, costs, quotas

pytestmark = pytest.mark.anyio

EVEN = TokenBucket(10, burst=1, name="even")  # one unit in 100 ms
THREE = TokenBucket(10, burst=3, name="three")
HOURLY = TokenBucket(1, 3600, name="hourly")


async def take(store: Store, *charges: Charge, max_wait: float = 0.0) -> Decision:
    return (await store.take([Take(charges, max_wait)]))[0]


async def peek(store: Store, *charges: Charge, max_wait: float = 0.0) -> Decision:
    return await store.peek(Take(charges, max_wait))


async def replay(store: Store, clock: SteppedClock, at_ms: list[float], take: Take) -> list[Decision]:
    """The decisions of one take, asked for at these milliseconds."""
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
    """Each refusal tells the time that is left, and asking again and again does not make it longer."""
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
    """``retry_after`` is how much too far it is, and the next one with more patience gets it."""
    await take(store, Charge(EVEN, "key"))
    refused = await take(store, Charge(EVEN, "key"), max_wait=0.08)
    assert (refused.allowed, refused.retry_after) == (False, 0.02)
    assert (await take(store, Charge(EVEN, "key"), max_wait=0.1)).delay == 0.1


async def test_a_decision_is_complete(store: Store, clock: SteppedClock) -> None:
    """It says all that headers, logs and sleepers need to know."""
    decision = await take(store, Charge(THREE, "key", 2))
    assert (decision.allowed, decision.granted, decision.delay, decision.retry_after) == (True, 2, 0.0, 0.0)
    assert (decision.remaining, decision.reset_after, decision.ready_at) == (1, 0.2, clock.now)
    assert (decision.quota, decision.degraded, decision.shadow) == (THREE, False, False)
    assert decision.take == Take((Charge(THREE, "key", 2),))


@pytest.mark.parametrize("max_wait", [0.0, 0.05])
async def test_a_second_quota_that_refuses_leaves_the_first_unchanged(store: Store, max_wait: float) -> None:
    """All or nothing: a request that is refused has taken nothing anywhere."""
    await take(store, Charge(EVEN, "key"))
    refused = await take(store, Charge(THREE, "key"), Charge(EVEN, "key"), max_wait=max_wait)
    assert (refused.allowed, refused.quota, refused.granted) == (False, EVEN, 0)
    assert [(state.allowed, state.remaining) for state in refused.states] == [(True, 3), (False, 0)]
    assert (await peek(store, Charge(THREE, "key"))).remaining == 3


async def test_a_second_key_that_refuses_leaves_the_first_unchanged(store: Store) -> None:
    """Keys are not special: all charges of a take are decided as one."""
    await take(store, Charge(HOURLY, "guild"))
    assert not (await take(store, Charge(HOURLY, "user"), Charge(HOURLY, "guild"))).allowed
    assert (await take(store, Charge(HOURLY, "user"))).allowed


async def test_charges_of_a_take_are_booked_at_one_moment(store: Store) -> None:
    """The longest wait is everybody's."""
    await take(store, Charge(EVEN, "key"))
    decision = await take(store, Charge(THREE, "key"), Charge(EVEN, "key"), max_wait=1.0)
    assert decision.delay == 0.1
    assert (await peek(store, Charge(THREE, "key"))).reset_after == 0.2


async def test_the_takes_of_one_call_see_each_other(store: Store) -> None:
    """They are decided in their order, and a refused one in between changes nothing for the next."""
    bills = [1, 3, 2, 1]
    decisions = await store.take([Take((Charge(THREE, "key", cost),)) for cost in bills])
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
    """The buckets that it names, and no others; one that was never used is no error."""
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
    """Whatever is in a key, and however long it is, its bucket is its own, and found again."""
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
    """A deployment with other numbers hands out no second allowance."""
    await take(store, Charge(TokenBucket(10, 60), "key", 6))
    assert (await take(store, Charge(TokenBucket(20, 60), "key", 1))).remaining == 13
    assert not (await take(store, Charge(TokenBucket(5, 60), "key", 1))).allowed


async def test_a_changed_period_starts_clean(store: Store) -> None:
    """A level that was scaled by another period means nothing."""
    await take(store, Charge(TokenBucket(10, 60, name="reads"), "key", 10))
    assert (await take(store, Charge(TokenBucket(10, 30, name="reads"), "key", 1))).remaining == 9
    assert (await take(store, Charge(TokenBucket(10, 60, name="reads"), "key", 1))).remaining == 9


async def test_a_clock_set_back_locks_nobody_out(store: Store, clock: SteppedClock) -> None:
    """After a day ahead and back again, an exhausted bucket is full within its refill time, as if nothing had been."""
    clock.advance(86_400)
    await take(store, Charge(THREE, "key", 3))
    clock.advance(-86_400)
    refused = await take(store, Charge(THREE, "key", 3))
    assert (refused.allowed, refused.retry_after) == (False, 0.3)
    clock.advance(0.3)
    assert (await take(store, Charge(THREE, "key", 3))).allowed


async def test_a_clock_set_back_a_little_gives_nothing(store: Store, clock: SteppedClock) -> None:
    """What was taken stays taken until the time has come again."""
    await take(store, Charge(THREE, "key", 3))
    clock.advance(-0.5)
    assert (await take(store, Charge(THREE, "key"))).retry_after == 0.6


FIXED = FixedWindow(3, 1, name="fixed")
ROLLING = RollingWindow(3, 1, 10, name="rolling")


@pytest.mark.parametrize("others", [(), (Charge(HOURLY, "other"),)], ids=["alone", "with another"])
@pytest.mark.parametrize(
    ("quota", "back", "retry_after", "after_a_refund"),
    [
        (THREE, 1, 1.1, 1),
        (THREE, 1.000001, 0.1, 0.1),
        (FIXED, 1, 2, 1),
        (FIXED, 1.000001, 0.000001, 0.000001),
        (ROLLING, 1, 2.1, 1),
        (ROLLING, 1.000001, 1.000001, 1.000001),
    ],
)
async def test_a_clock_may_go_back_by_a_period(
    store: Store,
    clock: SteppedClock,
    quota: Quota,
    back: float,
    retry_after: float,
    after_a_refund: float,
    others: tuple[Charge, ...],
) -> None:
    """Up to that it is waited out; beyond, the bucket counts as made just now, nothing of before goes back."""
    charges = (Charge(quota, "key"), *others)
    old, _ = [await take(store, Charge(quota, "key", cost)) for cost in (2, 1)]
    clock.advance(-back)
    assert (await take(store, *charges)).retry_after == retry_after
    await settle(((store, old),), 0.0)
    assert (await peek(store, *charges)).retry_after == after_a_refund


@pytest.mark.parametrize(
    ("quota", "back", "allowed", "then_left"),
    [
        (THREE, 1, True, 1),
        (THREE, 1.000001, True, 3),
        (FIXED, 1, False, 0),
        (FIXED, 1.000001, True, 3),
        (ROLLING, 1, False, 0),
        (ROLLING, 1.000001, True, 1),
    ],
)
async def test_a_take_after_a_clock_went_back(
    store: Store, clock: SteppedClock, quota: Quota, back: float, allowed: bool, then_left: int
) -> None:
    """It is booked as of now where the bucket was brought back, and time goes by for it from then on."""
    await take(store, Charge(quota, "key"))
    clock.advance(-back)
    assert (await take(store, Charge(quota, "key"))).allowed == allowed
    clock.advance(0.2)
    assert (await peek(store, Charge(quota, "key"))).remaining == then_left


async def test_healing_one_bucket_leaves_the_others_alone(store: Store, clock: SteppedClock) -> None:
    """A refusal brings back what a clock had left in the future, and is not seen by a bucket that was never used."""
    await take(store, Charge(EVEN, "key"))
    clock.advance(-60)
    assert not (await take(store, Charge(EVEN, "key"), Charge(THREE, "key"))).allowed
    clock.advance(-0.5)
    assert (await peek(store, Charge(THREE, "key"))).reset_after == 0.0


async def test_a_rate_that_no_double_holds(store: Store, clock: SteppedClock) -> None:
    """After 49 s at 1/49 a hair of a unit is left in the bucket: all of it is refused alike, for a microsecond."""
    quota = TokenBucket(1 / 49, burst=10, name="slow")
    await take(store, Charge(quota, "key"))
    clock.advance(49)
    refused = await take(store, Charge(quota, "key", 10))
    assert (refused.allowed, refused.remaining, refused.retry_after, refused.degraded) == (False, 9, 1e-6, False)
    clock.advance(1e-6)
    assert (await take(store, Charge(quota, "key", 10))).allowed


@pytest.mark.parametrize("quota", [THREE, HOURLY, TokenBucket(1, 86_400)], ids=lambda quota: quota.name)
@pytest.mark.parametrize("cost", [100, 1e9, 2**53])
async def test_pacing_books_a_cost_however_large(store: Store, quota: TokenBucket, cost: float) -> None:
    """From an empty bucket it goes at once, and holds the bucket for cost x period / limit."""
    first = await take(store, Charge(quota, "key", cost), max_wait=math.inf)
    assert (first.allowed, first.delay, first.degraded) == (True, 0.0, False)
    assert first.reset_after == pytest.approx(cost * quota.period / quota.limit)
    assert not (await take(store, Charge(quota, "key"), max_wait=1.0)).allowed


async def test_a_take_may_have_many_charges(store: Store) -> None:
    """Thousands of them are still one take, all or nothing."""
    charges = [Charge(HOURLY, f"key {number}") for number in range(9_000)]
    assert (await take(store, *charges)).allowed
    assert not (await take(store, charges[8_999], Charge(HOURLY, "key"))).allowed
    assert (await peek(store, Charge(HOURLY, "key"))).remaining == 1


async def test_a_take_may_have_many_quotas(store: Store) -> None:
    """Each with a bucket of its own."""
    charges = [Charge(TokenBucket(1, 3600, name=f"quota {number}"), "key") for number in range(300)]
    assert (await take(store, *charges)).allowed
    assert not (await take(store, charges[299], Charge(HOURLY, "key"))).allowed
    assert (await peek(store, Charge(HOURLY, "key"))).remaining == 1


async def test_a_call_may_have_many_takes(store: Store) -> None:
    """Hundreds of them, each with a quota of its own."""
    charges = [Charge(TokenBucket(number + 1, 3600, name=f"quota {number}"), "key") for number in range(300)]
    decisions = await store.take([Take((charge,)) for charge in charges])
    assert [decision.remaining for decision in decisions] == list(range(300))


async def test_a_store_can_be_used_again_after_it_was_closed(store: Store) -> None:
    """Closing lets go of connections, not of what was used; closing twice is no error."""
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
    """The scheme says which kind; nothing is connected yet."""
    assert type(open_store(url)) is kind


@pytest.mark.parametrize("url", ["", "redis", "memory", "redis:localhost", "http://localhost", "memcached://h", "://"])
def test_a_url_that_names_no_store(url: str) -> None:
    """It is quoted, and right ones are shown."""
    with pytest.raises(ConfigurationError, match=r"memory://.*redis://") as raised:
        open_store(url)
    assert repr(url) in str(raised.value)


def test_options_of_a_url_go_to_the_store() -> None:
    """Each kind takes its own."""
    assert "max_keys=5" in repr(open_store("memory://", max_keys=5))
    assert "timeout=1.5" in repr(open_store("redis://localhost", timeout=1.5, prefix="p"))


# The memory store is the reference: whatever happens, Redis says the same, to the bit.


@dataclass(frozen=True)
class Op:
    """A verb, so many microseconds after the last one, and its takes: (bill, longest wait); or what is settled."""

    verb: str
    step_us: int
    takes: Sequence[tuple[Sequence[tuple[int, str, float]], float]]
    settled: int
    share: float


History: TypeAlias = tuple[Sequence[Quota], Sequence[Op]]
VERBS = st.sampled_from(["take", "take", "take", "best effort", "peek", "settle", "settle", "reset"])
SHARES = st.sampled_from([0.0, 0.5, 1.0, 2.5])


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Quotas of all kinds, some of which share a name, and what is asked of a store that has them."""
    pool = [draw(quotas(name)) for name in "aab"]
    charge = st.tuples(st.sampled_from([0, 1, 2]), st.sampled_from(["x", "y"]), costs(5.0))
    bill = st.lists(charge, min_size=1, max_size=3, unique_by=lambda line: (pool[line[0]].name, line[1]))
    takes = st.lists(st.tuples(bill, WAITS), min_size=1, max_size=3)
    period = round(pool[0].period_us)
    step = st.integers(0, period) | st.just(0) | st.integers(-2 * period, 0) | st.sampled_from([period, -(10**11)])
    ops = st.builds(Op, VERBS, step, takes, st.integers(0, 20), SHARES)
    return pool, draw(st.lists(ops, min_size=1, max_size=15))


class Twins:
    """A memory store and a Redis store on one clock, and the loop on which both are asked the same."""

    def __init__(self, url: str) -> None:
        self.clock = SteppedClock()
        self.runner = asyncio.Runner()
        self.remote = RedisStore(url, clock=self.clock, timeout=30, on_error="deny")
        self.names = map("history {}".format, count())

    def run(self, history: History) -> None:
        self.runner.run(self._run(*history))

    async def _run(self, pool: Sequence[Quota], ops: Sequence[Op]) -> None:
        local, name, granted = MemoryStore(clock=self.clock), next(self.names), []
        self.clock.move_to(1_800_000_000)
        for op in ops:
            self.clock.advance(op.step_us / 1e6)
            if op.verb == "settle":
                await settle(granted[op.settled % len(granted)] if granted else (), op.share)
                continue
            takes = [take_of(pool, name, bill, wait, best_effort=op.verb == "best effort") for bill, wait in op.takes]
            ours, theirs = await answer(local, op.verb, takes), await answer(self.remote, op.verb, takes)
            assert ours == theirs
            if op.verb != "peek":
                granted += pairs(local, self.remote, ours, theirs)

    def close(self) -> None:
        self.runner.run(self.remote.aclose())
        self.runner.close()


Booked: TypeAlias = tuple[tuple[Store, Decision], ...]


def pairs(local: Store, remote: Store, ours: list[Decision], theirs: list[Decision]) -> list[Booked]:
    """What both stores booked, decision by decision."""
    return [((local, one), (remote, other)) for one, other in zip(ours, theirs) if one.allowed]


def take_of(
    pool: Sequence[Quota], name: str, bill: Sequence[tuple[int, str, float]], wait: float, *, best_effort: bool
) -> Take:
    if best_effort:
        return Take(tuple(Charge(pool[n], key, bill[0][2], name) for n, key, _ in bill), 0.0, best_effort=True)
    return Take(tuple(Charge(pool[n], key, cost, name) for n, key, cost in bill), wait)


async def answer(store: Store, verb: str, takes: list[Take]) -> list[Decision]:
    if verb == "peek":
        return [await store.peek(take) for take in takes]
    if verb == "reset":
        await store.reset(takes[0].charges)
        return []
    return await store.take(takes)


async def settle(booked: Booked, share: float) -> None:
    """Settle a decision in both stores, at a share of what it was granted."""
    for store, decision in booked:
        charged = [decision.granted if decision.take.best_effort else c.cost for c in decision.take.charges]
        settlement = settlement_of(decision, [cost * share for cost in charged])
        if settlement:
            await store.settle(settlement)


@pytest.fixture(scope="module")
def twins(redis_server: RedisServer) -> Iterator[Twins]:
    """One connection for all histories, which tell their buckets apart by name."""
    made = Twins(redis_server.url)
    yield made
    made.close()


@given(history=histories())
@settings(max_examples=200)
def test_all_stores_give_equal_decisions(twins: Twins, history: History) -> None:
    """All kinds of quotas, both modes, settlements, resets, changed numbers, and a clock that goes both ways."""
    twins.run(history)


@pytest.mark.long
@given(history=histories())
@settings(max_examples=10_000)
def test_all_stores_give_equal_decisions_for_long(twins: Twins, history: History) -> None:
    """The same, over ten thousand histories."""
    twins.run(history)


class Commands:
    """Which commands the script has called, by the server's own count."""

    def __init__(self, url: str) -> None:
        self.client = redis.Redis.from_url(url)

    def __enter__(self) -> Commands:
        self.client.config_resetstat()
        return self

    def __exit__(self, *error: object) -> None:
        stats = self.client.info("commandstats")
        self.client.close()
        called = {name.removeprefix("cmdstat_"): value["calls"] for name, value in stats.items()}
        self.seen = {
            name: calls for name, calls in called.items() if name not in ("config", "config|resetstat", "info")
        }


@pytest.fixture
async def remote(redis_url: str) -> AsyncIterator[RedisStore]:
    """A Redis store on the server's clock, with a connection and the script in place."""
    made = RedisStore(redis_url, timeout=30, on_error="deny")
    await take(made, Charge(HOURLY, "warm up"))
    yield made
    await made.aclose()


async def test_a_pass_reads_and_writes_each_key_once(remote: RedisStore, redis_url: str) -> None:
    """One GET and one SET for each charge, in one call."""
    with Commands(redis_url) as commands:
        await take(remote, Charge(HOURLY, "a"), Charge(HOURLY, "b"))
    assert commands.seen == {"evalsha": 1, "time": 1, "get": 2, "set": 2}


@pytest.mark.parametrize("max_wait", [0.0, 1.0])
async def test_a_refusal_writes_nothing(remote: RedisStore, redis_url: str, max_wait: float) -> None:
    """One GET for each charge, and neither a value nor a time to live is touched."""
    await take(remote, Charge(HOURLY, "a"))
    with Commands(redis_url) as commands:
        assert not (await take(remote, Charge(HOURLY, "b"), Charge(HOURLY, "a"), max_wait=max_wait)).allowed
    assert commands.seen == {"evalsha": 1, "time": 1, "get": 2}


async def test_a_peek_writes_nothing(remote: RedisStore, redis_url: str) -> None:
    """One GET for each charge, be it allowed or not."""
    with Commands(redis_url) as commands:
        assert (await peek(remote, Charge(HOURLY, "a"), Charge(HOURLY, "b"))).allowed
    assert commands.seen == {"evalsha": 1, "time": 1, "get": 2}


async def test_a_refusal_writes_once_to_heal(redis_url: str, clock: SteppedClock) -> None:
    """A bucket that a clock left in the future is brought back by one write, and the next refusal has none."""
    store = RedisStore(redis_url, timeout=30, clock=clock)
    await take(store, Charge(HOURLY, "a"))
    clock.advance(-86_400)
    for seen in ({"evalsha": 1, "get": 1, "set": 1}, {"evalsha": 1, "get": 1}):
        with Commands(redis_url) as commands:
            assert not (await take(store, Charge(HOURLY, "a"))).allowed
        assert commands.seen == seen
        clock.advance(1)  # until a refusal is no longer remembered
    await store.aclose()


async def test_a_peek_does_not_heal(redis_url: str, clock: SteppedClock) -> None:
    """Looking at a bucket that a clock left in the future leaves it there."""
    store = RedisStore(redis_url, timeout=30, clock=clock)
    await take(store, Charge(HOURLY, "a"))
    clock.advance(-86_400)
    with Commands(redis_url) as commands:
        assert not (await peek(store, Charge(HOURLY, "a"))).allowed
    assert commands.seen == {"evalsha": 1, "get": 1}
    await store.aclose()
