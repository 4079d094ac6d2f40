"""The values in Redis, byte for byte: a new version of the package reads what the old one wrote."""

from __future__ import annotations

import math
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, replace

import pytest
import redis

from asgi_ratelimit.algorithms import State, pack, unpack
from asgi_ratelimit.decision import Charge, Decision, Take
from asgi_ratelimit.inbound import RateLimitMiddleware
from asgi_ratelimit.limiter import Limiter
from asgi_ratelimit.quotas import FixedWindow, Quota, RollingWindow, TokenBucket
from asgi_ratelimit.stores import MemoryStore, RedisStore
from asgi_ratelimit.testing import SteppedClock
from tests.support.asgi import ask, http, ok
from tests.support.histories import without_generation
from tests.support.other_process import OtherProcess

pytestmark = pytest.mark.anyio

NOW = 1_800_000_000_000_000.0
GENERATION = 0  # every store gives out its own: it is blank where values are compared

BUCKET = TokenBucket(10, burst=1, name="quota")
BURST = TokenBucket(10, burst=10, name="quota")
FIXED = FixedWindow(10, 10, name="quota")
ROLLING = RollingWindow(10, 10, buckets=10, name="quota")
QUOTAS: list[Quota] = [BUCKET, FIXED, ROLLING]
WINDOW, PART = 180_000_000.0, 1_800_000_000.0  # those that NOW is the start of


def key_of(quota: Quota) -> str:
    """The key in Redis of the only bucket of these tests."""
    return f"rl:{Charge(quota, 'key').bucket}"


async def book(limiter: Limiter, callers: int, cancelled: int | None = None) -> None:
    """Book slots at NOW that nobody is to settle, and give one of them back all the same."""
    take = Take(limiter.charges("key"), math.inf)
    decisions = [(await limiter.store.take((take,)))[0] for _ in range(callers)]
    if cancelled is not None:
        await limiter.cancel(decisions[cancelled])


async def book_two(limiter: Limiter) -> None:
    await book(limiter, 2)


async def book_three_and_cancel_one(limiter: Limiter) -> None:
    await book(limiter, 3, cancelled=1)


async def book_three(limiter: Limiter) -> None:
    await book(limiter, 3)


async def book_one_and_settle_it_to_three(limiter: Limiter) -> None:
    decision = await limiter.rate_limit("key")
    await limiter.settle(decision, 3)


async def book_25_and_cancel_one(limiter: Limiter) -> None:
    await book(limiter, 25, cancelled=12)


async def book_one_and_settle_it_to_thirteen(limiter: Limiter) -> None:
    decision = await limiter.rate_limit("key")
    await limiter.settle(decision, 13)


async def take_three_and_settle_one(limiter: Limiter) -> None:
    """All may be settled, and the clock moves on between them."""
    decisions = []
    for _ in range(3):
        take = Take(limiter.charges("key", 2), may_settle=True)
        decisions += await limiter.store.take([take])
        limiter.store.clock.advance(0.1)
    await limiter.settle(decisions[1], 1)


async def take_three_of_two_versions(limiter: Limiter) -> None:
    """Two slots under a limit of five, and one now."""
    (quota,) = limiter.quotas
    await book(Limiter(replace(quota, limit=5), store=OtherProcess(limiter.store)), 6)
    await book(limiter, 1)


async def take_under_another_limit(limiter: Limiter) -> None:
    """Before, one unit under a limit of five."""
    before = Limiter(TokenBucket(5, burst=5, name="quota"), store=OtherProcess(limiter.store))
    await before.rate_limit("key", 0.5)
    await limiter.rate_limit("key", 0.5)


def without_generations(quota: Quota, value: bytes) -> bytes:
    """A value whose generation is 0, and that of another version in it."""
    at, size = generation_in(quota)
    value = value[:at] + bytes(size) + value[at + size :]
    state = unpack(quota, value)
    older, tail = b"" if state is None else state[5], b""
    if not older:
        return value
    if not isinstance(quota, TokenBucket):
        value, tail = value[:-4], value[-4:]
    return value[: len(value) - len(older)] + older[:at] + bytes(size) + older[at + size :] + tail


def generation_in(quota: Quota) -> tuple[int, int]:
    """Where the generation is in a value, and how many bytes it is."""
    return (24, 4) if isinstance(quota, TokenBucket) else (len(quota.stamp) + 8, 8)


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


OLDER = pack(TokenBucket(5, burst=5), (5e5, NOW, GENERATION, (), (), b""))
OLDER_FIXED = pack(
    FixedWindow(5, 10),
    ((0.0, ((WINDOW, WINDOW + 1, 5.0), (WINDOW + 1, WINDOW + 2, 1.0))), NOW, GENERATION, (), (), b""),
)
OLDER_ROLLING = pack(
    RollingWindow(5, 10, buckets=10), ((0.0, 0.0, ((PART, 5.0), (PART + 11, 1.0))), NOW, GENERATION, (), (), b"")
)

# of a bucket: the stamp, last, level, generation, the numbers of gaps and lows, the gaps, the lows, another version
# of a window: the stamp, last, generation; the core of the state; another version
GOLDEN = {
    "bucket": Golden(
        BUCKET,
        book_two,
        "07 00808400007132  000062a25c941943 0000000080843e41 00000000",
        (2e6, NOW, GENERATION, (), (), b""),
    ),
    "bucket with a gap": Golden(
        BUCKET,
        book_three_and_cancel_one,
        "07 00808400007132  000062a25c941943 0000000060e34641 00000000  0100000000000080842e410000000080842e41",
        (3e6, NOW, GENERATION, ((1e6, 1e6),), (), b""),
    ),
    "bucket with a debit": Golden(
        BUCKET,
        book_one_and_settle_it_to_three,
        "07 00808400007132  000062a25c941943 0000000060e34641 00000000  000002000062a25c9419430000000060e34641"
        "  0000000000000000000062a25c9419430000000060e34641",
        (3e6, NOW, GENERATION, (), ((NOW, 3e6, 0.0), (NOW, 3e6)), b""),
    ),
    "bucket with lows": Golden(
        BURST,
        take_three_and_settle_one,
        "07 008084f9007132  00356ea25c941943 0000000060e34641 00000000  000003000062a25c94194300000000d0125341"
        "  0000000080842e41000062a25c9419430000000080842e41801a68a25c9419430000000080842e41",
        (3e6, NOW + 200_000, GENERATION, (), ((NOW, 5e6, 1e6), (NOW, 1e6), (NOW + 100_000, 1e6)), b""),
    ),
    "bucket with another version": Golden(
        BUCKET,
        take_under_another_limit,
        "07 00808400007132  000062a25c941943 0000000080842e41 00000000  000000"
        "  07008082ae007132000062a25c9419430000000080841e4100000000",
        (1e6, NOW, GENERATION, (), (), OLDER),
    ),
    "fixed": Golden(
        FIXED,
        book_three,
        "08 00002041  000062a25c941943 0000000000000000  0000000000000000000000002a75a541000000022a"
        "  75a5410000000000000840",
        ((0.0, ((WINDOW, WINDOW + 1, 3.0),)), NOW, GENERATION, (), (), b""),
    ),
    "fixed, booked ahead": Golden(
        FIXED,
        book_25_and_cancel_one,
        "08 00002041  000062a25c941943 0000000000000000  0000000000000000000000002a75a541000000022a"
        "  75a5410000000000002440"
        "  000000022a75a541000000042a75a5410000000000002240000000042a75a541000000062a75a5410000000000001440",
        (
            (0.0, ((WINDOW, WINDOW + 1, 10.0), (WINDOW + 1, WINDOW + 2, 9.0), (WINDOW + 2, WINDOW + 3, 5.0))),
            NOW,
            GENERATION,
            (),
            (),
            b"",
        ),
    ),
    "fixed with another version": Golden(
        FIXED,
        take_three_of_two_versions,
        "08 00002041  000062a25c941943 0000000000000000  0000000000000000000000002a75a541000000022a"
        "  75a5410000000000001840"
        "  080000a040000062a25c94194300000000000000000000000000000000000000002a75a541000000022a75a5"
        "  410000000000001440000000"
        "  022a75a541000000042a75a541000000000000f03f4d000000",
        ((0.0, ((WINDOW, WINDOW + 1, 6.0),)), NOW, GENERATION, (), (), OLDER_FIXED),
    ),
    "rolling with another version": Golden(
        ROLLING,
        take_three_of_two_versions,
        "09 000020410a00  000062a25c941943 0000000000000000  00000000000000000000000000000000000000"
        "  8074d2da410000000000001840"
        "  090000a0400a00000062a25c9419430000000000000000000000000000000000000000000000000000008074"
        "  d2da41000000000000144000"
        "  00c08274d2da41000000000000f03f47000000",
        ((0.0, 0.0, ((PART, 6.0),)), NOW, GENERATION, (), (), OLDER_ROLLING),
    ),
    "rolling": Golden(
        ROLLING,
        book_three,
        "09 000020410a00  000062a25c941943 0000000000000000  00000000000000000000000000000000000000"
        "  8074d2da410000000000000840",
        ((0.0, 0.0, ((PART, 3.0),)), NOW, GENERATION, (), (), b""),
    ),
    "rolling, booked ahead": Golden(
        ROLLING,
        book_25_and_cancel_one,
        "09 000020410a00  000062a25c941943 0000000000000000  00000000000000000000000000000000000000"
        "  8074d2da410000000000002440"
        "  0000c08274d2da4100000000000022400000808574d2da410000000000001440",
        ((0.0, 0.0, ((PART, 10.0), (PART + 11, 9.0), (PART + 22, 5.0))), NOW, GENERATION, (), (), b""),
    ),
    "fixed with a debit": Golden(
        FIXED,
        book_one_and_settle_it_to_thirteen,
        "08 00002041  000062a25c941943 0000000000000000  0000000000000840000000002a75a541000000022a75a541"
        "  0000000000002440",
        ((3.0, ((WINDOW, WINDOW + 1, 10.0),)), NOW, GENERATION, (), (), b""),
    ),
    "rolling with a debit": Golden(
        ROLLING,
        book_one_and_settle_it_to_thirteen,
        "09 000020410a00  000062a25c941943 0000000000000000  000000000000000000000000000008400000008074d2da41"
        "  0000000000002440",
        ((0.0, 3.0, ((PART, 10.0),)), NOW, GENERATION, (), (), b""),
    ),
}
EACH = pytest.mark.parametrize("golden", GOLDEN.values(), ids=GOLDEN)


@pytest.fixture
def client(redis_url: str) -> Iterator[redis.Redis]:
    """A client of the same Redis."""
    with redis.Redis.from_url(redis_url) as made:
        yield made


@pytest.fixture
async def remote(redis_url: str, clock: SteppedClock, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RedisStore]:
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
    assert without_generations(golden.quota, client.get(key_of(golden.quota))).hex() == golden.value.hex()


@EACH
async def test_the_memory_store_has_the_same_state(golden: Golden, clock: SteppedClock) -> None:
    """The same history leaves the same state there."""
    store = MemoryStore(clock=clock)
    await golden.history(Limiter(golden.quota, store=store))
    assert len(store) == 1
    state = store.state_of(Charge(golden.quota, "key"))
    assert state is not None
    assert without_generations(golden.quota, pack(golden.quota, state)) == golden.value


@EACH
def test_python_packs_the_same_bytes(golden: Golden) -> None:
    """As the script does."""
    assert pack(golden.quota, golden.state).hex() == golden.value.hex()


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
    client.set(key_of(golden.quota), golden.value)
    assert await next_decisions(Limiter(golden.quota, store=remote), clock) == await next_decisions(limiter, clock)


async def require_unused(quota: Quota, remote: RedisStore, client: redis.Redis) -> None:
    """The value under the key does not count, and the next take replaces it."""
    limiter = Limiter(quota, store=remote)
    assert (await limiter.peek("key")).remaining == quota.most
    decision = await limiter.rate_limit("key")
    assert (decision.allowed, decision.remaining, decision.degraded) == (True, quota.most - 1, False)
    assert unpack(quota, client.get(key_of(quota))) is not None
    assert client.pttl(key_of(quota)) > 0


@EACH
@pytest.mark.parametrize("version", [0, 1, 4, 5, 6, 99, 255])
async def test_an_unknown_format_counts_as_never_used(
    golden: Golden, version: int, client: redis.Redis, remote: RedisStore
) -> None:
    """A later version may have written it, or another program."""
    value = bytes([version]) + golden.value[1:]
    client.set(key_of(golden.quota), value)
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
    client.set(key_of(quota), GOLDEN[other].value)
    assert unpack(quota, GOLDEN[other].value) is None
    await require_unused(quota, remote, client)


def lengths_of(golden: Golden) -> list[int]:
    """All lengths of a truncated value, but those that leave out its gaps and lows, another version, or whole runs."""
    whole = {TokenBucket: {28}, FixedWindow: range(29, 999, 24), RollingWindow: range(39, 999, 16)}
    version = len(golden.value) - len(golden.state[5])
    return [length for length in range(len(golden.value)) if length not in {*whole[type(golden.quota)], version}]


@EACH
def test_a_truncated_value_is_no_state(golden: Golden) -> None:
    """Whatever its length, it counts as never used."""
    for length in lengths_of(golden):
        assert unpack(golden.quota, golden.value[:length]) is None, length


@EACH
async def test_a_truncated_value_is_replaced(golden: Golden, client: redis.Redis, remote: RedisStore) -> None:
    """The script accepts it, whatever its length."""
    for length in lengths_of(golden):
        client.set(key_of(golden.quota), golden.value[:length])
        await require_unused(golden.quota, remote, client)


@EACH
@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
async def test_a_number_that_is_not_finite_counts_as_never_used(
    golden: Golden, number: float, client: redis.Redis, remote: RedisStore
) -> None:
    """Be it the time or anywhere in the core of a state."""
    size, packed = len(golden.quota.stamp), struct.pack("<d", number)
    older = golden.state[5]
    end = len(golden.value) - (len(older) + 4 if older else 0)
    stop = size + 16 if isinstance(golden.quota, TokenBucket) else end
    for at in range(size, stop, 8):
        value = golden.value[:at] + packed + golden.value[at + 8 :]
        client.set(key_of(golden.quota), value)
        assert unpack(golden.quota, value) is None, at
        await require_unused(golden.quota, remote, client)


@EACH
async def test_a_key_of_another_type_is_replaced(golden: Golden, client: redis.Redis, remote: RedisStore) -> None:
    """A list under the key is no state, and an allowed take replaces it by its own value."""
    client.rpush(key_of(golden.quota), "foreign")
    await require_unused(golden.quota, remote, client)


@EACH
async def test_settling_over_a_key_of_another_type(golden: Golden, client: redis.Redis, remote: RedisStore) -> None:
    """There is nothing to give back; a debit writes a new value."""
    limiter = Limiter(golden.quota, store=remote)
    first, second = [await limiter.pace("key") for _ in range(2)]
    client.delete(key_of(golden.quota))
    client.rpush(key_of(golden.quota), "foreign")
    await limiter.refund(first)
    assert client.type(key_of(golden.quota)) == b"list"
    await limiter.settle(second, 2)
    assert unpack(golden.quota, client.get(key_of(golden.quota))) is not None


async def limit_requests(limiter: Limiter, store: RedisStore) -> None:
    """Many requests of one client of a middleware."""
    app = RateLimitMiddleware(ok, "100/minute", store=store)
    for _ in range(20):
        assert (await ask(app, http(client=("10.1.2.3", 50_000)))).status == 200


async def take_once(limiter: Limiter, store: RedisStore) -> None:
    """A take that may be settled."""
    await limiter.rate_limit("10.1.2.3")


async def take_many(limiter: Limiter, store: RedisStore) -> None:
    """Of those that nobody settles."""
    for _ in range(50):
        await store.take([Take(limiter.charges("10.1.2.3"))])
        store.clock.advance(0.001)


@pytest.mark.parametrize("use", [limit_requests, take_once, take_many])
async def test_a_token_bucket_is_small(
    use: Callable[[Limiter, RedisStore], Awaitable[None]], client: redis.Redis, remote: RedisStore
) -> None:
    """At most 120 bytes, whatever the server, with a key of 32 characters."""
    await use(Limiter("100/minute", store=remote), remote)
    (key,) = client.keys()
    client.rename(key, "k" * 32)
    assert client.memory_usage("k" * 32) <= 120


async def test_a_rolling_window_is_small(client: redis.Redis, remote: RedisStore, clock: SteppedClock) -> None:
    """With all of its sixty parts in use: it stores parts, not requests."""
    quota = RollingWindow(10_000, 3600, name="quota")
    limiter = Limiter(quota, store=remote)
    for _ in range(180):
        clock.advance(20)
        await limiter.rate_limit("key", 55)
    state = unpack(quota, client.get(key_of(quota)))
    assert len(state[0][2]) >= 60
    assert client.memory_usage(key_of(quota)) < 2048


async def test_gaps_are_in_order(client: redis.Redis, remote: RedisStore, clock: SteppedClock) -> None:
    """In whatever order slots are given back, both stores hold the same gaps, the soonest first."""
    memory, quota = MemoryStore(clock=clock), BUCKET
    for store in (remote, memory):
        limiter = Limiter(quota, store=store)
        decisions = [await limiter.pace("key") for _ in range(70)]
        for number in (61, 15, 33, 47, 35):
            await limiter.cancel(decisions[number])
    state = memory.state_of(Charge(quota, "key"))
    assert len(state[3]) >= 3
    assert list(state[3]) == sorted(state[3])
    assert without_generation(unpack(quota, client.get(key_of(quota)))) == without_generation(state)
