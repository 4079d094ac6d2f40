"""``RedisStore`` over a real cluster: one call for each node, keys in several slots, redirections, a failover."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from redis.asyncio import RedisCluster as Client
from redis.crc import key_slot

from asgi_ratelimit import Charge, Decision, FixedWindow, Limiter, RedisStore, RollingWindow, Take, TokenBucket
from asgi_ratelimit.errors import StoreUnavailable
from asgi_ratelimit.stores.redis.connection.script_calls import Link
from asgi_ratelimit.testing import SteppedClock
from tests.support.redis_cluster import RedisCluster, asked, is_primary, wait_until

pytestmark = pytest.mark.anyio

HOURLY = TokenBucket(10, 3600, name="hourly")
SHARED = TokenBucket(5, 3600, name="shared")


@pytest.fixture(scope="module")
def running() -> Iterator[RedisCluster]:
    """A cluster for the whole module; a test that changes it for good starts its own."""
    with RedisCluster() as cluster:
        yield cluster


@pytest.fixture
def cluster(running: RedisCluster) -> RedisCluster:
    """That cluster, with no keys and no scripts in it."""
    running.flush()
    return running


@pytest.fixture
async def store(cluster: RedisCluster) -> AsyncIterator[RedisStore]:
    """A store on it; a test fails where it would decide by itself."""
    async with open_on(cluster) as store:
        yield store


@asynccontextmanager
async def open_on(cluster: RedisCluster, **options: Any) -> AsyncIterator[RedisStore]:
    store = RedisStore(cluster.url, **{"timeout": 30, "on_error": "deny", **options})
    yield store
    await store.aclose()


def slot_of(key: str) -> int:
    return key_slot(f"{{{key}}}".encode())


def keys_on(cluster: RedisCluster, at: int, count: int = 1) -> list[str]:
    """Keys in different slots of one primary."""
    found: dict[int, str] = {}
    for number in range(10_000):
        slot = slot_of(f"key-{number}")
        if cluster.owner(slot) is cluster.primaries[at]:
            found.setdefault(slot, f"key-{number}")
        if len(found) == count:
            return list(found.values())
    raise AssertionError("there are not that many")


def calls(cluster: RedisCluster) -> list[int]:
    """How often each primary was called."""
    said = [asked(node, "INFO", "commandstats").decode() for node in cluster.primaries]
    return [
        sum(int(line.split("calls=")[1].split(",")[0]) for line in each.splitlines() if "eval" in line) for each in said
    ]


def of(name: str, *quotas: Any, cost: float = 1) -> tuple[Charge, ...]:
    return tuple(Charge(quota, name, cost) for quota in quotas)


async def take(store: RedisStore, *charges: Charge, max_wait: float = 0.0, best_effort: bool = False) -> Decision:
    (decision,) = await store.take([Take(charges, max_wait, best_effort)])
    return decision


async def left(store: RedisStore, quota: Any, key: str) -> int:
    return (await store.peek(Take((Charge(quota, key),)))).remaining


async def test_a_limit_holds_whatever_the_node(store: RedisStore, cluster: RedisCluster) -> None:
    """Keys are spread over the nodes, and each has its own bucket."""
    keys = [keys_on(cluster, at)[0] for at in range(3)]
    limiter = Limiter(HOURLY, store=store)
    decisions = {key: await asyncio.gather(*[limiter.rate_limit(key) for _ in range(15)]) for key in keys}
    assert {key: sum(d.allowed for d in each) for key, each in decisions.items()} == dict.fromkeys(keys, 10)
    assert not any(d.degraded for each in decisions.values() for d in each)
    assert all(calls(cluster))


async def test_a_ready_client_leads_to_it(cluster: RedisCluster) -> None:
    """Its nodes and credentials are used, whatever its other settings are."""
    async with Client.from_url(
        cluster.url.partition(",")[0].replace("redis+cluster", "redis"), decode_responses=True
    ) as client:
        store = RedisStore(client, timeout=30, on_error="deny")
        decisions = [await take(store, *of(f"key-{number}", HOURLY)) for number in range(20)]
        await store.aclose()
    assert all(d.allowed and not d.degraded for d in decisions)


async def test_a_batch_is_one_packet_for_each_node(store: RedisStore, cluster: RedisCluster) -> None:
    """Takes that wait together go together, one call for each slot."""
    keys = keys_on(cluster, 0, 10)
    await take(store, *of(keys[0], HOURLY))  # which finds the nodes, and loads the script
    before = calls(cluster)
    await asyncio.gather(*[take(store, *of(key, HOURLY)) for key in keys for _ in range(3)])
    first, *others = [now - then for now, then in zip(calls(cluster), before)]
    assert len(keys) <= first <= len(keys) + 1  # the very first take goes alone
    assert others == [0, 0]


async def test_keys_of_one_node_are_one_packet(
    store: RedisStore, cluster: RedisCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although their slots are several, and whoever went alone before."""
    keys = keys_on(cluster, 0, 2)
    await take(store, *of(keys[0], HOURLY))
    evaluate, packets = Link.evaluate, []

    async def counted(link: Link, calls: Any, *further: Any, **options: Any) -> Any:
        packets.append(len(calls))
        return await evaluate(link, calls, *further, **options)

    monkeypatch.setattr(Link, "evaluate", counted)
    for _ in range(3):
        await take(store, *[charge for key in keys for charge in of(key, HOURLY)])
    assert packets == [2, 2, 2]


async def test_charges_of_one_key_are_one_call(store: RedisStore, cluster: RedisCluster) -> None:
    """They share a hash tag."""
    (key,) = keys_on(cluster, 1)
    await take(store, *of(key, HOURLY))
    before = sum(calls(cluster))
    await take(store, *of(key, HOURLY, SHARED, FixedWindow(10, 60), RollingWindow(10, 3600, name="rolling")))
    assert sum(calls(cluster)) == before + 1


async def test_keys_in_several_slots_are_all_or_nothing(store: RedisStore, cluster: RedisCluster) -> None:
    """What one node grants is given back where another refuses."""
    own, shared = keys_on(cluster, 0)[0], keys_on(cluster, 2)[0]
    decisions = [await take(store, *of(own, HOURLY), *of(shared, SHARED)) for _ in range(8)]
    assert [d.allowed for d in decisions] == [True] * 5 + [False] * 3
    assert decisions[-1].quota == SHARED
    assert [state.remaining for state in decisions[-1].states] == [5, 0]
    assert 0 < decisions[-1].retry_after <= 3600 / 5
    assert (await left(store, HOURLY, own), await left(store, SHARED, shared)) == (5, 0)


async def test_a_refused_key_is_refused_here(store: RedisStore, cluster: RedisCluster) -> None:
    """Also where the take has keys in other slots."""
    own, shared = keys_on(cluster, 0)[0], keys_on(cluster, 2)[0]
    for _ in range(6):
        await take(store, *of(own, HOURLY), *of(shared, SHARED))
    before = calls(cluster)
    decisions = [await take(store, *of(own, HOURLY), *of(shared, SHARED)) for _ in range(50)]
    assert not any(d.allowed for d in decisions)
    assert calls(cluster) == before


async def test_a_refund_reaches_every_node(store: RedisStore, cluster: RedisCluster) -> None:
    """Each charge is given back where it was booked; settling up is owed there."""
    own, shared = keys_on(cluster, 0)[0], keys_on(cluster, 2)[0]
    limiter = Limiter(HOURLY, store=store)
    first = await limiter.take([*of(own, HOURLY), *of(shared, SHARED)])
    second = await limiter.take([*of(own, HOURLY), *of(shared, SHARED)])
    await limiter.refund(first)
    await limiter.settle(second, 3)
    assert await left(store, HOURLY, own) == 6
    assert await left(store, SHARED, shared) == 1


async def test_a_partial_grant_is_what_all_can_give(store: RedisStore, cluster: RedisCluster) -> None:
    """And that much is taken from each."""
    own, shared = keys_on(cluster, 0)[0], keys_on(cluster, 2)[0]
    decision = await take(store, *of(own, HOURLY, cost=8), *of(shared, SHARED, cost=8), best_effort=True)
    assert (decision.allowed, decision.granted) == (True, 5)
    assert [state.remaining for state in decision.states] == [5, 0]
    again = await take(store, *of(own, HOURLY, cost=8), *of(shared, SHARED, cost=8), best_effort=True)
    assert (again.allowed, again.granted) == (False, 0)


async def test_a_reset_reaches_every_node(store: RedisStore, cluster: RedisCluster) -> None:
    """All buckets of the charges are as never used."""
    own, shared = keys_on(cluster, 0)[0], keys_on(cluster, 2)[0]
    await take(store, *of(own, HOURLY), *of(shared, SHARED))
    await store.reset([*of(own, HOURLY), *of(shared, SHARED)])
    assert (await left(store, HOURLY, own), await left(store, SHARED, shared)) == (10, 5)


async def test_a_paced_take_books_the_same_slot_everywhere(cluster: RedisCluster) -> None:
    """The latest of all ready times, so that no node holds a slot that is not used then."""
    clock = SteppedClock()
    own, shared = keys_on(cluster, 0)[0], keys_on(cluster, 2)[0]
    slow, quick = TokenBucket(1, 1, burst=1, name="slow"), TokenBucket(10, 1, burst=1, name="quick")
    async with open_on(cluster, clock=clock) as store:
        delays = [(await take(store, *of(own, slow), *of(shared, quick), max_wait=9)).delay for _ in range(3)]
        assert delays == [0.0, 1.0, 2.0]
        assert (await take(store, *of(shared, quick), max_wait=9)).delay == pytest.approx(2.1)


async def test_a_paced_take_that_is_too_far_away_books_nothing(cluster: RedisCluster) -> None:
    """On no node."""
    clock = SteppedClock()
    own, shared = keys_on(cluster, 0)[0], keys_on(cluster, 2)[0]
    slow, quick = TokenBucket(1, 1, burst=1, name="slow"), TokenBucket(10, 1, burst=1, name="quick")
    async with open_on(cluster, clock=clock) as store:
        await take(store, *of(own, slow), *of(shared, quick), max_wait=9)
        refused = await take(store, *of(own, slow), *of(shared, quick), max_wait=0.5)
        assert (refused.allowed, refused.retry_after) == (False, 0.5)
        assert (await take(store, *of(shared, quick), max_wait=9)).delay == pytest.approx(0.1)


async def test_many_at_once_over_several_slots(store: RedisStore, cluster: RedisCluster) -> None:
    """No more than the shared limit are admitted, and what was given back is there for the own keys."""
    (shared,) = keys_on(cluster, 2)
    owns = keys_on(cluster, 0, 5) + keys_on(cluster, 1, 5)
    bills = [(*of(own, HOURLY), *of(shared, SHARED)) for own in owns for _ in range(4)]
    decisions = await asyncio.gather(*[take(store, *bill) for bill in bills])
    admitted = [decision for decision in decisions if decision.allowed]
    assert len(admitted) == 5
    used = sum([10 - await left(store, HOURLY, own) for own in owns])
    assert used == 5


async def test_a_script_that_one_node_forgot(store: RedisStore, cluster: RedisCluster) -> None:
    """It is sent again, and nothing is charged twice."""
    keys = keys_on(cluster, 0, 5) + keys_on(cluster, 1, 5)
    await asyncio.gather(*[take(store, *of(key, HOURLY)) for key in keys])
    asked(cluster.primaries[0], "SCRIPT", "FLUSH")
    decisions = await asyncio.gather(*[take(store, *of(key, HOURLY)) for key in keys])
    assert {(d.allowed, d.degraded, d.remaining) for d in decisions} == {(True, False, 8)}


async def test_a_slot_that_has_moved() -> None:
    """The node that had it says where it is now, and the next call goes there by itself."""
    with RedisCluster() as cluster:
        async with open_on(cluster) as store:
            keys = keys_on(cluster, 0, 3)
            assert all([(await take(store, *of(key, HOURLY))).allowed for key in keys[1:]])
            cluster.move(slot_of(keys[0]), cluster.primaries[2])
            decisions = await asyncio.gather(*[take(store, *of(key, HOURLY)) for key in keys for _ in range(3)])
            assert all(d.allowed and not d.degraded for d in decisions)
            asked(cluster.primaries[0], "CONFIG", "RESETSTAT")
            assert (await take(store, *of(keys[0], HOURLY))).remaining == 6
            assert calls(cluster)[0] == 0


async def test_a_slot_that_is_being_moved() -> None:
    """Keys that are not there yet are asked for at the target, until the move is over."""
    with RedisCluster() as cluster:
        async with open_on(cluster) as store:
            (key,) = keys_on(cluster, 0)
            await take(store, *of("another", HOURLY))
            cluster.begin_to_move(slot_of(key), cluster.primaries[1])
            decisions = await asyncio.gather(*[take(store, *of(key, HOURLY)) for _ in range(12)])
            assert sum(d.allowed for d in decisions) == 10
            assert not any(d.degraded for d in decisions)


async def test_a_replica_that_takes_over(caplog: pytest.LogCaptureFixture) -> None:
    """While a primary is gone its keys are decided here, those of the others are not; then all is well again."""
    with RedisCluster(replicas=1) as cluster:
        async with open_on(cluster, timeout=0.25, on_error="local") as store:
            (gone,), (well,) = keys_on(cluster, 0), keys_on(cluster, 1)
            assert not (await take(store, *of(gone, HOURLY))).degraded
            await take(store, *of(well, HOURLY))
            cluster.primaries[0].stop()
            assert (await take(store, *of(gone, HOURLY))).degraded
            assert not (await take(store, *of(well, HOURLY))).degraded
            wait_until(lambda: is_primary(cluster.replicas[0]))
            await until_back(store, gone)
            assert not (await take(store, *of(well, HOURLY))).degraded
        assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]


async def until_back(store: RedisStore, key: str) -> None:
    """Return when a take is decided by the cluster again."""
    for _ in range(300):
        if not (await take(store, *of(key, HOURLY))).degraded:
            return
        await asyncio.sleep(0.05)
    pytest.fail("it does not come back")


async def test_a_cluster_that_is_not_there() -> None:
    """It is decided here, and whoever asks is told why."""
    store = RedisStore("redis+cluster://127.0.0.1:1,127.0.0.1:2", timeout=0.25)
    assert (await take(store, *of("key", HOURLY))).degraded
    with pytest.raises(StoreUnavailable, match="cluster"):
        await store.peek(Take(of("key", HOURLY)))
    await store.aclose()


async def test_a_redis_that_is_no_cluster(redis_url: str, caplog: pytest.LogCaptureFixture) -> None:
    """The log says so."""
    store = RedisStore(redis_url.replace("redis://", "redis+cluster://"), timeout=5)
    assert (await take(store, *of("key", HOURLY))).degraded
    assert "cluster support disabled" in caplog.text
    await store.aclose()


async def test_every_key_has_a_time_to_live(store: RedisStore, cluster: RedisCluster) -> None:
    """On every node, also after takes that were given back."""
    owns, (shared,) = keys_on(cluster, 0, 3) + keys_on(cluster, 1, 3), keys_on(cluster, 2)
    for own in owns:
        await take(store, *of(own, HOURLY), *of(shared, SHARED), max_wait=math.inf)
        await take(store, *of(own, HOURLY), *of(shared, SHARED))
    keys = [(node, key) for node in cluster.primaries for key in asked(node, "KEYS", "*")]
    assert len(keys) == len(owns) + 1
    assert all(asked(node, "PTTL", key) > 0 for node, key in keys)
