"""The commands that the script calls: one read for each charge, one write where it is allowed, no others."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import pytest
import redis

from asgi_ratelimit import RateLimitMiddleware, Rule
from asgi_ratelimit.algorithms import wait_of
from asgi_ratelimit.decision import Charge, Take
from asgi_ratelimit.limiter import Limiter
from asgi_ratelimit.quotas import FixedWindow, Quota, RollingWindow, TokenBucket
from asgi_ratelimit.stores import RedisStore
from asgi_ratelimit.testing import SteppedClock
from tests.support.asgi import ask, ok
from tests.support.charges import on_bucket

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("unwatched")]

BUCKET = TokenBucket(10, burst=1, name="quota")
FIXED = FixedWindow(10, 10, name="quota")
ROLLING = RollingWindow(10, 10, buckets=10, name="quota")
HOURLY = TokenBucket(1, 3600, name="hourly")
KINDS = pytest.mark.parametrize("quota", [BUCKET, FIXED, ROLLING], ids=["bucket", "fixed", "rolling"])

A, B = Charge(HOURLY, "a"), Charge(HOURLY, "b")


class Commands:
    """The commands that Redis has carried out since this was made, by its own count."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        client.config_resetstat()

    @property
    def all(self) -> dict[str, int]:
        stats = self._client.info("commandstats")
        called = {name.removeprefix("cmdstat_"): stat["calls"] for name, stat in stats.items()}
        return {name: calls for name, calls in called.items() if name not in ("config", "config|resetstat", "info")}

    @property
    def on_keys(self) -> dict[str, int]:
        return {name: calls for name, calls in self.all.items() if name in ("get", "set")}


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


@pytest.fixture
async def on_server_time(redis_url: str) -> AsyncIterator[RedisStore]:
    """A Redis store on the clock of the server, with a connection and the script in place."""
    made = RedisStore(redis_url, timeout=30, on_error="deny")
    await made.take([Take((Charge(HOURLY, "warm up"),))])
    yield made
    await made.aclose()


async def test_an_allowed_take_reads_and_writes_each_key_once(on_server_time: RedisStore, client: redis.Redis) -> None:
    """One GET and one SET for each charge, in one call."""
    commands = Commands(client)
    await on_server_time.take([Take((A, B))])
    assert commands.all == {"evalsha": 1, "time": 1, "get": 2, "set": 2}


async def test_a_rule_in_shadow_is_decided_in_the_same_call(on_server_time: RedisStore, client: redis.Redis) -> None:
    """As the rules that are enforced."""
    trial = Rule("/{path:path}", "1/hour", name="trial", shadow=True)
    app = RateLimitMiddleware(ok, "9/hour", rules=[trial], store=on_server_time, name="app")
    await ask(app)
    commands = Commands(client)
    assert (await ask(app)).status == 200
    assert commands.all == {"evalsha": 1, "time": 1, "get": 2, "set": 1}


@pytest.mark.parametrize("max_wait", [0.0, 1.0])
async def test_a_refused_take_writes_nothing(on_server_time: RedisStore, client: redis.Redis, max_wait: float) -> None:
    """One GET for each charge; neither a value nor a time to live changes."""
    await on_server_time.take([Take((A,))])
    commands = Commands(client)
    (refused,) = await on_server_time.take([Take((B, A), max_wait)])
    assert not refused.allowed
    assert commands.all == {"evalsha": 1, "time": 1, "get": 2}


async def test_a_peek_writes_nothing(on_server_time: RedisStore, client: redis.Redis) -> None:
    """One GET for each charge."""
    commands = Commands(client)
    assert (await on_server_time.peek(Take((A, B)))).allowed
    assert commands.all == {"evalsha": 1, "time": 1, "get": 2}


async def test_a_refusal_rebases_a_state_once(client: redis.Redis, remote: RedisStore, clock: SteppedClock) -> None:
    """A bucket that a clock left in the future is rebased by one write, and the next refusal has none."""
    await remote.take([Take((A,))])
    clock.advance(-86_400)
    for expected in ({"evalsha": 1, "get": 1, "set": 1}, {"evalsha": 1, "get": 1}):
        commands = Commands(client)
        (refused,) = await remote.take([Take((A,))])
        assert not refused.allowed
        assert commands.all == expected
        clock.advance(1)  # until a refusal is no longer remembered


async def test_a_peek_rebases_nothing(client: redis.Redis, remote: RedisStore, clock: SteppedClock) -> None:
    """A bucket that a clock left in the future stays as it is."""
    await remote.take([Take((A,))])
    clock.advance(-86_400)
    commands = Commands(client)
    assert not (await remote.peek(Take((A,)))).allowed
    assert commands.all == {"evalsha": 1, "get": 1}


@KINDS
async def test_a_settlement_is_two_reads_and_two_writes(quota: Quota, client: redis.Redis, remote: RedisStore) -> None:
    """Its own key, which says that it was carried out, and that of the bucket; a repeated one is one read."""
    limiter = Limiter(quota, store=remote)
    commands = Commands(client)
    decision = await limiter.pace("key")
    assert commands.on_keys == {"get": 1, "set": 1}
    again = replace(decision)
    await limiter.cancel(decision)
    assert commands.on_keys == {"get": 3, "set": 3}
    await limiter.cancel(again)
    assert commands.on_keys == {"get": 4, "set": 3}


@KINDS
async def test_an_operation_is_one_read_and_one_write_more(
    quota: Quota, client: redis.Redis, remote: RedisStore
) -> None:
    """Of its own key; a repeated one is one read and nothing else."""
    limiter = Limiter(quota, store=remote)
    commands = Commands(client)
    await limiter.rate_limit("key", operation="id")
    assert commands.on_keys == {"get": 2, "set": 2}
    await limiter.rate_limit("key", operation="id")
    assert commands.on_keys == {"get": 3, "set": 2}


@KINDS
@pytest.mark.parametrize("max_delay", [0, 0.01])
async def test_a_repeated_refusal_is_not_sent(
    quota: Quota, max_delay: float, client: redis.Redis, remote: RedisStore
) -> None:
    """The first one is one read, for a caller that waits a little, too; the next ones make no call."""
    limiter = Limiter(quota, store=remote)
    await limiter.rate_limit("key", quota.most)
    commands = Commands(client)
    for _ in range(3):
        assert not (await limiter.pace("key", max_delay=max_delay)).allowed
    assert commands.on_keys == {"get": 1}


async def test_a_charge_that_is_granted_ends_a_refusal(remote: RedisStore) -> None:
    """A smaller one may be granted after it: then the bucket is fuller, and the wait of the larger one is longer."""
    quota = TokenBucket(4, 3600)

    async def wait_us(cost: float) -> float:
        answer: Any = remote.submit_charge(*on_bucket(Charge(quota, "key", cost)))
        return wait_of(answer if isinstance(answer, tuple) else await answer)

    unit_us = quota.period_us / quota.limit
    assert [await wait_us(2), round(await wait_us(3) / unit_us), await wait_us(1)] == [0, 1, 0]
    assert round(await wait_us(3) / unit_us) == 2


async def test_each_charge_is_read_and_written_once(client: redis.Redis, remote: RedisStore) -> None:
    """For all kinds of quotas in one take; where one refuses, none is written."""
    limiter = Limiter(
        [BUCKET, FixedWindow(10, 10, name="fixed"), RollingWindow(2, 10, 10, name="rolling")], store=remote
    )
    commands = Commands(client)
    for expected in ({"get": 3, "set": 3}, {"get": 6, "set": 6}, {"get": 9, "set": 6}):
        await limiter.pace("key", max_delay=10)
        assert commands.on_keys == expected
