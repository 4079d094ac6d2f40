"""The values in Redis, byte for byte: a new version of the package reads what the old one wrote."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from statistics import median

import pytest
import redis

from asgi_ratelimit.algorithms import State, pack, unpack
from asgi_ratelimit.decision import Charge, Decision
from asgi_ratelimit.limiter import Limiter
from asgi_ratelimit.quotas import FixedWindow, Quota, RollingWindow, TokenBucket
from asgi_ratelimit.stores import MemoryStore, RedisStore
from asgi_ratelimit.testing import SteppedClock

pytestmark = pytest.mark.anyio

NOW = 1_800_000_000_000_000.0
GENERATION = 32_768  # the low 16 bits of NOW

BUCKET = TokenBucket(10, burst=1, name="quota")
FIXED = FixedWindow(10, 10, name="quota")
ROLLING = RollingWindow(10, 10, buckets=10, name="quota")
QUOTAS: list[Quota] = [BUCKET, FIXED, ROLLING]
WINDOW, PART = 180_000_000.0, 1_800_000_000.0  # those that NOW is the start of

KEY = "rl:default:quota:{key}"


async def book(limiter: Limiter, callers: int, cancelled: int | None = None) -> None:
    """Book slots at NOW, and give one of them back."""
    decisions = [await limiter.pace("key") for _ in range(callers)]
    if cancelled is not None:
        await limiter.cancel(decisions[cancelled])


async def book_two(limiter: Limiter) -> None:
    await book(limiter, 2)


async def book_three_and_cancel_one(limiter: Limiter) -> None:
    await book(limiter, 3, cancelled=1)


async def book_three(limiter: Limiter) -> None:
    await book(limiter, 3)


async def book_25_and_cancel_one(limiter: Limiter) -> None:
    await book(limiter, 25, cancelled=12)


async def book_one_and_settle_it_to_three(limiter: Limiter) -> None:
    decision = await limiter.rate_limit("key")
    await limiter.settle(decision, 3)


@dataclass
class Golden:
    """The history that leads to a value, its bytes, and its state."""

    quota: Quota
    history: Callable[[Limiter], Awaitable[None]]
    hexadecimal: str
    state: State

    @property
    def value(self) -> bytes:
        return bytes.fromhex(self.hexadecimal)


# format, period, last, generation; the core of the state; the numbers of gaps and ids, the gaps, the ids
GOLDEN = {
    "bucket": Golden(
        BUCKET,
        book_two,
        "01 00247449 000062a25c941943 0080  0000000080843e41",
        (2e6, NOW, GENERATION, (), (), b""),
    ),
    "bucket with a gap": Golden(
        BUCKET,
        book_three_and_cancel_one,
        "01 00247449 000062a25c941943 0080  0000000060e34641"
        "  01 01  0000000080842e41 0000000080842e41  eab06ce426382943",
        (3e6, NOW, GENERATION, ((1e6, 1e6),), (3_549_307_055_003_765.0,)),
    ),
    "bucket with a debit": Golden(
        BUCKET,
        book_one_and_settle_it_to_three,
        "01 00247449 000062a25c941943 0080  0000000060e34641  00 01  14a4f19959ad1743",
        (3e6, NOW, GENERATION, (), (1_666_131_202_697_477.0,)),
    ),
    "fixed": Golden(
        FIXED,
        book_three,
        "02 8096184b 000062a25c941943 0080  000000002a75a541 0000000000000840",
        ((WINDOW, 3.0), NOW, GENERATION, (), (), b""),
    ),
    "fixed with a gap": Golden(
        FIXED,
        book_25_and_cancel_one,
        "02 8096184b 000062a25c941943 0080  000000042a75a541 0000000000001440"
        "  01 01  000000022a75a541 000000000000f03f  bd9ce64d86d13e43",
        ((WINDOW + 2, 5.0), NOW, GENERATION, ((WINDOW + 1, 1.0),), (8_674_624_064_101_565.0,)),
    ),
    "rolling": Golden(
        ROLLING,
        book_three,
        "03 8096184b 000062a25c941943 0080  0a00 0100 0000008074d2da41 0000000000000840",
        (((PART, 3.0),), NOW, GENERATION, (), (), b""),
    ),
    "rolling with a gap": Golden(
        ROLLING,
        book_25_and_cancel_one,
        "03 8096184b 000062a25c941943 0080  0a00 0100 0000808574d2da41 0000000000001440"
        "  01 01  0000c08274d2da41 000000000000f03f  f510175e4e833243",
        (((PART + 22, 5.0),), NOW, GENERATION, ((PART + 11, 1.0),), (5_210_922_190_049_525.0,)),
    ),
    "rolling with a debit": Golden(
        ROLLING,
        book_one_and_settle_it_to_three,
        "03 8096184b 000062a25c941943 0080  0a00 0100 0000008074d2da41 0000000000000840  00 01  36565d8652ea3e43",
        (((PART, 3.0),), NOW, GENERATION, (), (8_701_889_463_801_398.0,)),
    ),
}
EACH = pytest.mark.parametrize("golden", GOLDEN.values(), ids=GOLDEN)


@pytest.fixture
def client(redis_url: str) -> Iterator[redis.Redis]:
    """A client of the same Redis."""
    with redis.Redis.from_url(redis_url) as made:
        yield made


@pytest.fixture
async def remote(redis_url: str, clock: SteppedClock) -> AsyncIterator[RedisStore]:
    """A Redis store on a clock that is stepped by hand."""
    made = RedisStore(redis_url, clock=clock, timeout=30)
    yield made
    await made.aclose()


@EACH
def test_a_value_is_read(golden: Golden) -> None:
    """The bytes stand for this state."""
    assert unpack(golden.quota, golden.value) == golden.state


@EACH
async def test_a_value_is_written(golden: Golden, client: redis.Redis, remote: RedisStore) -> None:
    """By the script, after this history, to the byte."""
    await golden.history(Limiter(golden.quota, store=remote))
    assert client.get(KEY).hex() == golden.value.hex()


@EACH
async def test_the_memory_store_has_the_same_state(golden: Golden, clock: SteppedClock) -> None:
    """The same history leaves the same state there."""
    store = MemoryStore(clock=clock)
    await golden.history(Limiter(golden.quota, store=store))
    assert len(store) == 1
    assert store.state_of(Charge(golden.quota, "key")) == golden.state


@EACH
def test_python_packs_the_same_bytes(golden: Golden) -> None:
    """With its ids, and without them where two states are compared."""
    assert pack(golden.quota, golden.state).hex() == golden.value.hex()
    without_ids = (*golden.state[:4], ())
    assert pack(golden.quota, golden.state, with_ids=False) == pack(golden.quota, without_ids)


async def next_decisions(limiter: Limiter, clock: SteppedClock) -> list[Decision]:
    """Of a few takes in either mode, now and a while later."""
    decisions = []
    for step in (0, 0.05, 10, 0.5):
        clock.advance(step)
        decisions += [await limiter.pace("key"), await limiter.rate_limit("key"), await limiter.pace("key", 0.5)]
    clock.advance(-10.55)
    return decisions


@EACH
async def test_the_script_continues_from_a_value(
    golden: Golden, client: redis.Redis, remote: RedisStore, clock: SteppedClock
) -> None:
    """A value in Redis stands for its history: the next decisions equal those of a memory store with that history."""
    limiter = Limiter(golden.quota, store=MemoryStore(clock=clock))
    await golden.history(limiter)
    client.set(KEY, golden.value)
    assert await next_decisions(Limiter(golden.quota, store=remote), clock) == await next_decisions(limiter, clock)


async def require_unused(quota: Quota, remote: RedisStore, client: redis.Redis) -> None:
    """The value under the key does not count, and the next take replaces it."""
    limiter = Limiter(quota, store=remote)
    assert (await limiter.peek("key")).remaining == quota.most
    decision = await limiter.rate_limit("key")
    assert (decision.allowed, decision.remaining, decision.degraded) == (True, quota.most - 1, False)
    assert unpack(quota, client.get(KEY)) is not None
    assert client.pttl(KEY) > 0


@EACH
@pytest.mark.parametrize("version", [0, 4, 99, 255])
async def test_an_unknown_format_counts_as_never_used(
    golden: Golden, version: int, client: redis.Redis, remote: RedisStore
) -> None:
    """A later version may have written it, or another program."""
    value = bytes([version]) + golden.value[1:]
    client.set(KEY, value)
    assert unpack(golden.quota, value) is None
    await require_unused(golden.quota, remote, client)


@pytest.mark.parametrize(
    ("quota", "other"),
    [(quota, name) for quota in QUOTAS for name in GOLDEN if type(GOLDEN[name].quota) is not type(quota)],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
async def test_another_kinds_format_counts_as_never_used(
    quota: Quota, other: str, client: redis.Redis, remote: RedisStore
) -> None:
    """A quota that became one of another kind starts clean."""
    client.set(KEY, GOLDEN[other].value)
    assert unpack(quota, GOLDEN[other].value) is None
    await require_unused(quota, remote, client)


def lengths_of(golden: Golden) -> list[int]:
    """All lengths of a truncated value, but the one that leaves out all of its gaps and ids."""
    cores = {TokenBucket: 23, FixedWindow: 31, RollingWindow: 35}
    return [length for length in range(len(golden.value)) if length != cores[type(golden.quota)]]


@EACH
def test_a_truncated_value_is_no_state(golden: Golden) -> None:
    """Whatever its length, it counts as never used."""
    for length in lengths_of(golden):
        assert unpack(golden.quota, golden.value[:length]) is None, length


@EACH
async def test_a_truncated_value_is_replaced(golden: Golden, client: redis.Redis, remote: RedisStore) -> None:
    """The script accepts it, whatever its length."""
    for length in lengths_of(golden):
        client.set(KEY, golden.value[:length])
        await require_unused(golden.quota, remote, client)


@EACH
async def test_a_key_of_another_type_is_replaced(golden: Golden, client: redis.Redis, remote: RedisStore) -> None:
    """A list under the key is no state, and an allowed take replaces it by its own value."""
    client.rpush(KEY, "foreign")
    await require_unused(golden.quota, remote, client)


@EACH
async def test_settling_over_a_key_of_another_type(golden: Golden, client: redis.Redis, remote: RedisStore) -> None:
    """There is nothing to give back; a debit writes a new value."""
    limiter = Limiter(golden.quota, store=remote)
    first, second = [await limiter.pace("key") for _ in range(2)]
    client.delete(KEY)
    client.rpush(KEY, "foreign")
    await limiter.refund(first)
    assert client.type(KEY) == b"list"
    await limiter.settle(second, 2)
    assert unpack(golden.quota, client.get(KEY)) is not None


async def test_a_token_bucket_is_small(client: redis.Redis, remote: RedisStore) -> None:
    """By the server's own account, however much it is used; an allocator gives some keys a little more."""
    limiter = Limiter("100/minute", store=remote)
    keys = [f"10.1.2.{number}" for number in range(9)]
    for key in keys * 50:
        await limiter.rate_limit(key)
    sizes = [client.memory_usage(f"rl:default:per-minute:{{{key}}}") for key in keys]
    assert median(sizes) < 120


async def test_a_rolling_window_is_small(client: redis.Redis, remote: RedisStore, clock: SteppedClock) -> None:
    """With all of its sixty parts in use: it stores parts, not requests."""
    limiter = Limiter(RollingWindow(10_000, 3600, name="quota"), store=remote)
    for _ in range(180):
        clock.advance(20)
        await limiter.rate_limit("key", 55)
    state = unpack(RollingWindow(10_000, 3600), client.get(KEY))
    assert len(state[0]) >= 60
    assert client.memory_usage(KEY) < 2048


KINDS = pytest.mark.parametrize("quota", QUOTAS, ids=["bucket", "fixed", "rolling"])


@KINDS
async def test_a_state_holds_the_last_eight_settlements(
    quota: Quota, client: redis.Redis, remote: RedisStore, clock: SteppedClock
) -> None:
    """The same ones in both stores; a state stays small however much is given back."""
    memory = MemoryStore(clock=clock)
    for store in (remote, memory):
        limiter = Limiter(quota, store=store)
        for decision in [await limiter.pace("key") for _ in range(12)]:
            await limiter.cancel(decision)
    state = memory.state_of(Charge(quota, "key"))
    assert len(state[4]) == len(set(state[4])) == 8
    assert unpack(quota, client.get(KEY)) == state


@KINDS
async def test_gaps_are_in_order(quota: Quota, client: redis.Redis, remote: RedisStore, clock: SteppedClock) -> None:
    """In whatever order slots are given back, both stores hold the same gaps, the soonest first."""
    memory = MemoryStore(clock=clock)
    for store in (remote, memory):
        limiter = Limiter(quota, store=store)
        decisions = [await limiter.pace("key") for _ in range(70)]
        for number in (61, 15, 33, 47, 35):
            await limiter.cancel(decisions[number])
    state = memory.state_of(Charge(quota, "key"))
    assert len(state[3]) >= 3
    assert list(state[3]) == sorted(state[3])
    assert unpack(quota, client.get(KEY)) == state
