"""The store that processes share: what is in Redis, and how takes are submitted."""

from __future__ import annotations

import asyncio
import gc
import math
import random
import struct
import threading
from contextlib import AsyncExitStack
from typing import Any
from weakref import ref

import pytest
import redis

from asgi_ratelimit import Charge, ConfigurationError, FixedWindow, Quota, RedisStore, RollingWindow, Take, TokenBucket
from asgi_ratelimit.algorithms.rolling_window import RollingWindowState
from asgi_ratelimit.algorithms.take import decide, pack
from tests.stores.redis.limiters import PATIENT, QUOTA, limiter_on, require_service
from tests.support.redis_cluster import script_calls
from tests.support.redis_server import RedisServer

pytestmark = pytest.mark.anyio

KEY = b"rl:default:per-hour:{key}"


async def test_a_bucket_is_one_string_key(redis_url: str, client: redis.Redis) -> None:
    """One for each quota of a limiter, under a name that people can read."""
    async with limiter_on(redis_url, "100/minute; 1000/hour") as limiter:
        await limiter.rate_limit("1.2.3.4")
        await limiter.rate_limit("1.2.3.4")
    assert set(client.keys()) == {b"rl:default:per-minute:{1.2.3.4}", b"rl:default:per-hour:{1.2.3.4}"}
    assert {client.type(key) for key in client.scan_iter()} == {b"string"}


@pytest.mark.parametrize(("prefix", "written"), [("app", b"app"), ("my app:1", b"my%20app%3A1"), ("{x}", b"%7Bx%7D")])
async def test_a_prefix_keeps_apps_apart(redis_url: str, client: redis.Redis, prefix: str, written: bytes) -> None:
    """It is the first part of every key, escaped like the others."""
    await require_service(redis_url, prefix=prefix)
    await require_service(redis_url, prefix="other")
    assert set(client.keys()) == {written + b":default:per-hour:{key}", b"other:default:per-hour:{key}"}


@pytest.mark.filterwarnings("ignore")  # of connections that nobody has closed
def test_closed_event_loops_are_released(redis_url: str) -> None:
    """All but the latest, with their connections, also where nobody has closed the store."""
    store, loops = RedisStore(redis_url, timeout=PATIENT), []
    for _ in range(5):
        loop = asyncio.new_event_loop()
        loop.run_until_complete(store.peek(Take((Charge(TokenBucket(10), "ended"),))))
        loop.close()
        loops.append(ref(loop))
        del loop
    for thread in threading.enumerate():
        if thread.name == "rate limit lookup":
            thread.join()  # until it ends, it has the future that its event loop waited for
    gc.collect()
    are_released = [loop() is None for loop in loops]
    del store
    gc.collect()  # here, where what nobody has closed is no mistake
    assert are_released == [True] * 4 + [False]


async def test_a_reset_while_a_refusal_is_in_flight(redis_url: str) -> None:
    """A refusal that comes back during a reset is not remembered after it."""
    async with limiter_on(redis_url) as limiter:
        await limiter.rate_limit("key", 10)
        refused = asyncio.ensure_future(limiter.rate_limit("key"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)  # it is in flight
        await limiter.reset("key")
        assert not (await refused).allowed
        assert (await limiter.rate_limit("key")).remaining == 9


FOREIGN_VALUES = [
    b"",
    b"garbage that is quite a bit longer than a state",
    struct.pack("<BI4d", 99, QUOTA.stamp, 5.0, 1.0, 1.0, 0.0),
    struct.pack("<BI4d", 20, QUOTA.stamp, math.nan, 1.0, 1.0, 0.0),
    struct.pack("<BI4d", 20, QUOTA.stamp, -5.0, 1.0, 1.0, 0.0),
]


@pytest.mark.parametrize("value", FOREIGN_VALUES, ids=repr)
async def test_a_value_of_another_format_counts_as_unused(redis_url: str, client: redis.Redis, value: bytes) -> None:
    """It is written anew, with a time to live."""
    client.set(KEY, value)
    await require_service(redis_url)
    assert client.get(KEY).startswith(struct.pack("<BI", 20, QUOTA.stamp))
    assert client.pttl(KEY) > 0


@pytest.mark.parametrize("number", [1e300, -1e300, 2.0**60, -1.0, 5e-324], ids=repr)
@pytest.mark.parametrize("quota", [TokenBucket(20, 60, burst=2), FixedWindow(3, 60), RollingWindow(3, 60)], ids=repr)
async def test_a_value_with_an_absurd_number(redis_url: str, client: redis.Redis, quota: Quota, number: float) -> None:
    """Whichever number it is, every take is answered, and so are those beside it."""
    async with limiter_on(redis_url, quota) as limiter:
        for _ in range(3):
            await limiter.pace("key")
        (name,) = client.keys("*{key}")
        value = client.get(name)
        for at in range(5, len(value) - 7, 4):
            client.set(name, value[:at] + struct.pack("<d", number) + value[at + 8 :])
            verbs = limiter.rate_limit("key"), limiter.pace("key"), limiter.peek("key")
            *_, other = await asyncio.gather(*verbs, limiter.rate_limit(f"other {at}"))
            assert (other.allowed, other.degraded) == (True, False)


async def test_a_key_of_another_type_counts_as_never_used(redis_url: str, client: redis.Redis) -> None:
    """A peek leaves it as it is; a take that passes puts its own value there."""
    client.rpush(KEY, "foreign")
    async with limiter_on(redis_url) as limiter:
        assert (await limiter.peek("key")).remaining == 10
        assert client.type(KEY) == b"list"
    await require_service(redis_url)
    assert client.type(KEY) == b"string"


async def test_a_huge_value_counts_as_never_used(redis_url: str, client: redis.Redis) -> None:
    """Whoever has written it: a peek of it fails nobody, and does not read it."""
    client.set(KEY, bytes(10_000_000), ex=60)
    async with limiter_on(redis_url) as limiter:
        peeked, other = await asyncio.gather(limiter.peek("key"), limiter.rate_limit("other"))
        assert (peeked.remaining, other.degraded) == (10, False)
        assert client.info("memory")["used_memory_lua"] < 5_000_000
        assert (await limiter.rate_limit("key")).remaining == 9


@pytest.mark.parametrize("answer", [b"", b"garbage", b"\x02" + bytes(32) + b"\xff\xff", bytes(72)], ids=repr)
async def test_the_answer_of_an_operation_that_is_unreadable(
    redis_url: str, client: redis.Redis, answer: bytes
) -> None:
    """The operation counts as a new one, and the takes beside it in the batch are decided."""
    async with limiter_on(redis_url) as limiter:
        assert (await limiter.rate_limit("key", operation="id")).remaining == 9
        (operation,) = set(client.keys()) - {KEY}
        client.set(operation, answer, ex=60)
        again, other = await asyncio.gather(limiter.rate_limit("key", operation="id"), limiter.rate_limit("other"))
        assert [(each.remaining, each.degraded, each.repeated) for each in (again, other)] == [
            (8, False, False),
            (9, False, False),
        ]


async def test_processes_with_one_seed_settle_their_own_decisions(redis_url: str) -> None:
    """As programs have that repeat their numbers."""
    async with AsyncExitStack() as stack:
        for _ in range(2):
            random.seed(1)
            limiter = await stack.enter_async_context(limiter_on(redis_url))
            await limiter.refund(await limiter.rate_limit("key", 3))
            assert (await limiter.peek("key")).remaining == QUOTA.limit


async def test_a_missing_script_is_sent_again(redis_url: str, client: redis.Redis) -> None:
    """Each take is charged once, also where many find it missing at the same time."""
    async with limiter_on(redis_url, TokenBucket(100, 3600)) as limiter:
        for remaining in (99, 98, 97):
            assert (await limiter.rate_limit("key")).remaining == remaining
            client.script_flush()
        decisions = await asyncio.gather(*[limiter.rate_limit("key") for _ in range(20)])
    assert sorted(decision.remaining for decision in decisions) == list(range(77, 97))


async def test_time_is_the_servers(redis_url: str, client: redis.Redis) -> None:
    """Machines whose clocks differ agree: Redis dates each decision, to the microsecond."""
    async with limiter_on(redis_url) as limiter:
        before = client.time()
        decision = await limiter.rate_limit("key")
        after = client.time()
    ready_us = round(decision.ready_at * 1e6)
    assert before[0] * 10**6 + before[1] <= ready_us <= after[0] * 10**6 + after[1]


async def test_a_window_books_a_bounded_number_of_parts(redis_url: str, client: redis.Redis) -> None:
    """No state is larger than what is read again: more is refused, in memory as well."""
    quota = RollingWindow(1, 1, 1)
    async with limiter_on(redis_url, quota) as limiter:
        now = (await limiter.peek("key")).now_us
        for count, is_allowed in ((1999, True), (2000, False)):
            parts = tuple([(now // 1e6 + 2 * number, 1.0) for number in range(count)])
            client.set("rl:default:per-second:r1/1:{key}", pack(quota, RollingWindowState(now, parts)))
            decision = await limiter.pace("key")
            assert decision.allowed == is_allowed
            state = [RollingWindowState(decision.now_us, parts)]
            assert decide(decision.charges, state, decision.now_us, math.inf)[0] == decision.wait_us


# Invalid arguments


@pytest.mark.parametrize(
    ("option", "value"), [("timeout", 0), ("timeout", 250), ("on_error", "ignore"), ("replicas", 0), ("prefix", 5)]
)
def test_invalid_options(option: str, value: Any) -> None:
    """The error has the option's name and value."""
    with pytest.raises(ConfigurationError, match=f"{option} must be") as raised:
        RedisStore("redis://localhost", **{option: value})
    assert repr(value) in str(raised.value)


async def test_takes_of_one_call_share_a_batch(remote: RedisStore, redis_server: RedisServer) -> None:
    """Also after a single take: a request with a shadow rule waits for Redis once."""
    takes = [Take((Charge(QUOTA, key),)) for key in ("one", "other")]
    await remote.take(takes[:1])
    before = script_calls(redis_server)
    for _ in range(3):
        await remote.take(takes)
    assert script_calls(redis_server) - before == 3


async def test_the_work_in_a_call_is_bounded(remote: RedisStore, redis_server: RedisServer) -> None:
    """Takes of many charges need several calls; each take is charged once, in order."""
    quotas = [FixedWindow(100, 86_400, name=f"quota {number}") for number in range(40)]
    takes = [Take(tuple([Charge(quota, "key") for quota in quotas])) for _ in range(60)]
    decisions = await remote.take(takes)
    assert [(decision.remaining, decision.degraded) for decision in decisions] == [(99 - n, False) for n in range(60)]
    assert script_calls(redis_server) > 5


async def test_calls_are_small_where_slots_are_booked_ahead(redis_url: str, redis_server: RedisServer) -> None:
    """A rolling window can have thousands of parts then, which takes and settlements look at."""
    async with limiter_on(redis_url, RollingWindow(1, 60)) as limiter:
        booked = await asyncio.gather(*[limiter.pace("key") for _ in range(60)])
        taken = script_calls(redis_server)
        await asyncio.gather(*[limiter.cancel(each) for each in booked])
    assert taken > 8 < script_calls(redis_server) - taken
