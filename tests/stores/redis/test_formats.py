"""The values that Redis keeps, byte for byte: a deployment with a new version reads what the old one wrote."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from statistics import median

import pytest
import redis

from asgi_ratelimit.algorithms import State
from asgi_ratelimit.decision import Decision
from asgi_ratelimit.limiter import Limiter
from asgi_ratelimit.quotas import FixedWindow, Quota, RollingWindow, TokenBucket
from asgi_ratelimit.stores import MemoryStore, RedisStore
from asgi_ratelimit.stores.redis.script import unpack_state
from asgi_ratelimit.testing import SteppedClock

pytestmark = pytest.mark.anyio

NOW = 1_800_000_000_000_000.0
ERA = 32_768.0  # the low 16 bits of NOW

BUCKET = TokenBucket(10, burst=1, name="quota")
FIXED = FixedWindow(10, 10, name="quota")
ROLLING = RollingWindow(10, 10, buckets=10, name="quota")
QUOTAS: list[Quota] = [BUCKET, FIXED, ROLLING]
WINDOW, PART = 180_000_000.0, 1_800_000_000.0  # those that NOW is the start of

KEY = "rl:default:quota:{key}"


async def book(limiter: Limiter, callers: int, cancelled: int | None = None) -> None:
    """Slots at NOW, one of which is given back."""
    decisions = [await limiter.pace("key") for _ in range(callers)]
    if cancelled is not None:
        await limiter.cancel(decisions[cancelled])


async def book_two(limiter: Limiter) -> None:
    await book(limiter, 2)


async def book_three_of_which_one_is_cancelled(limiter: Limiter) -> None:
    await book(limiter, 3, cancelled=1)


async def book_three(limiter: Limiter) -> None:
    await book(limiter, 3)


async def book_25_of_which_one_is_cancelled(limiter: Limiter) -> None:
    await book(limiter, 25, cancelled=12)


async def book_one_that_came_to_three(limiter: Limiter) -> None:
    decision = await limiter.rate_limit("key")
    await limiter.settle(decision, 3)


@dataclass
class Golden:
    """How a value comes to be, its bytes, and the state that they stand for."""

    quota: Quota
    history: Callable[[Limiter], Awaitable[None]]
    hexadecimal: str
    state: State

    @property
    def value(self) -> bytes:
        return bytes.fromhex(self.hexadecimal)


# format, period, last, era; then what the kind of quota keeps; then the numbers of holes and ids, the holes, the ids
GOLDEN = {
    "bucket": Golden(
        BUCKET,
        book_two,
        "01 00247449 000062a25c941943 0080  0000000080843e41",
        (2e6, NOW, ERA, (), ()),
    ),
    "bucket with a hole": Golden(
        BUCKET,
        book_three_of_which_one_is_cancelled,
        "01 00247449 000062a25c941943 0080  0000000060e34641"
        "  01 01  0000000080842e41 0000000080842e41  eab06ce426382943",
        (3e6, NOW, ERA, ((1e6, 1e6),), (3_549_307_055_003_765.0,)),
    ),
    "bucket with debt": Golden(
        BUCKET,
        book_one_that_came_to_three,
        "01 00247449 000062a25c941943 0080  0000000060e34641  00 01  14a4f19959ad1743",
        (3e6, NOW, ERA, (), (1_666_131_202_697_477.0,)),
    ),
    "fixed": Golden(
        FIXED,
        book_three,
        "02 8096184b 000062a25c941943 0080  000000002a75a541 0000000000000840",
        ((WINDOW, 3.0), NOW, ERA, (), ()),
    ),
    "fixed with a hole": Golden(
        FIXED,
        book_25_of_which_one_is_cancelled,
        "02 8096184b 000062a25c941943 0080  000000042a75a541 0000000000001440"
        "  01 01  000000022a75a541 000000000000f03f  bd9ce64d86d13e43",
        ((WINDOW + 2, 5.0), NOW, ERA, ((WINDOW + 1, 1.0),), (8_674_624_064_101_565.0,)),
    ),
    "rolling": Golden(
        ROLLING,
        book_three,
        "03 8096184b 000062a25c941943 0080  0a00 0100 0000008074d2da41 0000000000000840",
        (((PART, 3.0),), NOW, ERA, (), ()),
    ),
    "rolling with a hole": Golden(
        ROLLING,
        book_25_of_which_one_is_cancelled,
        "03 8096184b 000062a25c941943 0080  0a00 0100 0000808574d2da41 0000000000001440"
        "  01 01  0000c08274d2da41 000000000000f03f  f510175e4e833243",
        (((PART + 22, 5.0),), NOW, ERA, ((PART + 11, 1.0),), (5_210_922_190_049_525.0,)),
    ),
    "rolling with debt": Golden(
        ROLLING,
        book_one_that_came_to_three,
        "03 8096184b 000062a25c941943 0080  0a00 0100 0000008074d2da41 0000000000000840  00 01  36565d8652ea3e43",
        (((PART, 3.0),), NOW, ERA, (), (8_701_889_463_801_398.0,)),
    ),
}
EACH = pytest.mark.parametrize("golden", GOLDEN.values(), ids=GOLDEN)


@pytest.fixture
def client(redis_url: str) -> Iterator[redis.Redis]:
    """To look into Redis from outside of the store."""
    with redis.Redis.from_url(redis_url) as made:
        yield made


@pytest.fixture
async def remote(redis_url: str, clock: SteppedClock) -> AsyncIterator[RedisStore]:
    """A store whose faults no failover hides."""
    made = RedisStore(redis_url, clock=clock, timeout=30)
    yield made
    await made.aclose()


@EACH
def test_a_value_is_read(golden: Golden) -> None:
    """The bytes stand for this state."""
    assert unpack_state(golden.quota, golden.value) == golden.state


@EACH
async def test_a_value_is_written(golden: Golden, client: redis.Redis, remote: RedisStore) -> None:
    """By the script, after this history, to the byte."""
    await golden.history(Limiter(golden.quota, store=remote))
    assert client.get(KEY).hex() == golden.value.hex()


@EACH
async def test_a_state_is_what_memory_keeps(golden: Golden, clock: SteppedClock) -> None:
    """The same history leaves the same state there."""
    store = MemoryStore(clock=clock)
    await golden.history(Limiter(golden.quota, store=store))
    assert [kept.state for kept in store._buckets.values()] == [golden.state]


async def next_decisions(limiter: Limiter, clock: SteppedClock) -> list[Decision]:
    """Of a few takes in either mode, now and a while later."""
    decisions = []
    for step in (0, 0.05, 10, 0.5):
        clock.advance(step)
        decisions += [await limiter.pace("key"), await limiter.rate_limit("key"), await limiter.pace("key", 0.5)]
    clock.advance(-10.55)
    return decisions


@EACH
async def test_the_script_goes_on_from_a_value(
    golden: Golden, client: redis.Redis, remote: RedisStore, clock: SteppedClock
) -> None:
    """A value that is found there is as good as the history that it comes from, in memory."""
    limiter = Limiter(golden.quota, store=MemoryStore(clock=clock))
    await golden.history(limiter)
    client.set(KEY, golden.value)
    assert await next_decisions(Limiter(golden.quota, store=remote), clock) == await next_decisions(limiter, clock)


async def require_unused(quota: Quota, remote: RedisStore, client: redis.Redis) -> None:
    """What lies under the key does not count, and the next take heals it."""
    limiter = Limiter(quota, store=remote)
    assert (await limiter.peek("key")).remaining == quota.most
    decision = await limiter.rate_limit("key")
    assert (decision.allowed, decision.remaining, decision.degraded) == (True, quota.most - 1, False)
    assert unpack_state(quota, client.get(KEY)) is not None
    assert client.pttl(KEY) > 0


@EACH
@pytest.mark.parametrize("version", [0, 4, 99, 255])
async def test_an_unknown_format_counts_as_never_used(
    golden: Golden, version: int, client: redis.Redis, remote: RedisStore
) -> None:
    """What a version to come has written, or something else altogether."""
    value = bytes([version]) + golden.value[1:]
    client.set(KEY, value)
    assert unpack_state(golden.quota, value) is None
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
    assert unpack_state(quota, GOLDEN[other].value) is None
    await require_unused(quota, remote, client)


def lengths_of(golden: Golden) -> list[int]:
    """All lengths that a value may be cut to, but the one that leaves off all of its holes and ids."""
    cores = {TokenBucket: 23, FixedWindow: 31, RollingWindow: 35}
    return [length for length in range(len(golden.value)) if length != cores[type(golden.quota)]]


@EACH
def test_a_truncated_value_is_no_state(golden: Golden) -> None:
    """Wherever it was cut: it counts as never used."""
    for length in lengths_of(golden):
        assert unpack_state(golden.quota, golden.value[:length]) is None, length


@EACH
async def test_a_truncated_value_heals(golden: Golden, client: redis.Redis, remote: RedisStore) -> None:
    """The script does not stumble over it, wherever it was cut."""
    for length in lengths_of(golden):
        client.set(KEY, golden.value[:length])
        await require_unused(golden.quota, remote, client)


@EACH
async def test_a_key_of_another_type_heals(golden: Golden, client: redis.Redis, remote: RedisStore) -> None:
    """A list under the key is no state, and a take that passes puts its own value there."""
    client.rpush(KEY, "foreign")
    await require_unused(golden.quota, remote, client)


@EACH
async def test_settling_over_a_key_of_another_type(golden: Golden, client: redis.Redis, remote: RedisStore) -> None:
    """There is nothing that could be given back; debt makes a value anew."""
    limiter = Limiter(golden.quota, store=remote)
    first, second = [await limiter.pace("key") for _ in range(2)]
    client.delete(KEY)
    client.rpush(KEY, "foreign")
    await limiter.refund(first)
    assert client.type(KEY) == b"list"
    await limiter.settle(second, 2)
    assert unpack_state(golden.quota, client.get(KEY)) is not None


async def test_a_token_bucket_is_small(client: redis.Redis, remote: RedisStore) -> None:
    """By the server's own account, however much it is used; an allocator gives some keys a little more."""
    limiter = Limiter("100/minute", store=remote)
    keys = [f"10.1.2.{number}" for number in range(9)]
    for key in keys * 50:
        await limiter.rate_limit(key)
    sizes = [client.memory_usage(f"rl:default:per-minute:{{{key}}}") for key in keys]
    assert median(sizes) < 120


async def test_a_rolling_window_is_small(client: redis.Redis, remote: RedisStore, clock: SteppedClock) -> None:
    """With all of its sixty parts in use: it counts parts, not requests."""
    limiter = Limiter(RollingWindow(10_000, 3600, name="quota"), store=remote)
    for _ in range(180):
        clock.advance(20)
        await limiter.rate_limit("key", 55)
    state = unpack_state(RollingWindow(10_000, 3600), client.get(KEY))
    assert len(state[0]) >= 60
    assert client.memory_usage(KEY) < 2048


class Commands:
    """Which commands the script has called, by the server's own count."""

    def __init__(self, client: redis.Redis) -> None:
        self.client = client
        client.config_resetstat()

    @property
    def seen(self) -> dict[str, int]:
        called = {
            name.removeprefix("cmdstat_"): stat["calls"] for name, stat in self.client.info("commandstats").items()
        }
        return {name: called[name] for name in ("get", "set") if name in called}


KINDS = pytest.mark.parametrize("quota", QUOTAS, ids=["bucket", "fixed", "rolling"])


@KINDS
async def test_a_pass_is_one_read_and_one_write(quota: Quota, client: redis.Redis, remote: RedisStore) -> None:
    """And so is a settlement."""
    limiter = Limiter(quota, store=remote)
    commands = Commands(client)
    decision = await limiter.pace("key")
    assert commands.seen == {"get": 1, "set": 1}
    await limiter.cancel(decision)
    assert commands.seen == {"get": 2, "set": 2}


@KINDS
@pytest.mark.parametrize("max_delay", [0, 0.01])
async def test_a_refusal_only_reads(quota: Quota, max_delay: float, client: redis.Redis, remote: RedisStore) -> None:
    """Be it of a caller who waits for a while or of one who does not; and the next one is refused with no call."""
    limiter = Limiter(quota, store=remote)
    await limiter.rate_limit("key", quota.most)
    commands = Commands(client)
    for _ in range(3):
        assert not (await limiter.pace("key", max_delay=max_delay)).allowed
    assert commands.seen == {"get": 1}


async def test_each_charge_is_read_and_written_once(client: redis.Redis, remote: RedisStore) -> None:
    """However many there are in one take; where one refuses, none is written."""
    limiter = Limiter(
        [BUCKET, FixedWindow(10, 10, name="fixed"), RollingWindow(2, 10, 10, name="rolling")], store=remote
    )
    commands = Commands(client)
    for seen in ({"get": 3, "set": 3}, {"get": 6, "set": 6}, {"get": 9, "set": 6}):
        await limiter.pace("key", max_delay=10)
        assert commands.seen == seen


@KINDS
async def test_the_last_eight_settlements_are_remembered(
    quota: Quota, client: redis.Redis, remote: RedisStore, clock: SteppedClock
) -> None:
    """The same ones in both stores, so that a state stays small however much is given back."""
    memory = MemoryStore(clock=clock)
    for store in (remote, memory):
        limiter = Limiter(quota, store=store)
        for decision in [await limiter.pace("key") for _ in range(12)]:
            await limiter.cancel(decision)
    (kept,) = [each.state for each in memory._buckets.values()]
    assert len(kept[4]) == len(set(kept[4])) == 8
    assert unpack_state(quota, client.get(KEY)) == kept


@KINDS
async def test_gaps_are_kept_in_order(
    quota: Quota, client: redis.Redis, remote: RedisStore, clock: SteppedClock
) -> None:
    """In whatever order slots are given back, both stores keep the same, the soonest first."""
    memory = MemoryStore(clock=clock)
    for store in (remote, memory):
        limiter = Limiter(quota, store=store)
        decisions = [await limiter.pace("key") for _ in range(70)]
        for number in (61, 15, 33, 47, 35):
            await limiter.cancel(decisions[number])
    (kept,) = [each.state for each in memory._buckets.values()]
    assert len(kept[3]) >= 3
    assert list(kept[3]) == sorted(kept[3])
    assert unpack_state(quota, client.get(KEY)) == kept
