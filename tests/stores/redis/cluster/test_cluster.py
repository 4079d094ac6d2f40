"""``RedisStore`` over a real cluster: one call for each node, keys in several slots, redirections, a failover."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from redis.asyncio import RedisCluster as Client

from asgi_ratelimit import Charge, Decision, Limiter, RedisStore, StoreTimeout, StoreUnavailable, Take, TokenBucket
from asgi_ratelimit.stores.redis import clients, nodes, outage
from asgi_ratelimit.stores.redis.nodes import MOST_CONNECTIONS
from asgi_ratelimit.stores.redis.scan import Scan
from asgi_ratelimit.testing import SteppedClock
from tests.support.overriding import until_async
from tests.support.redis_cluster import RedisCluster, asked, script_calls
from tests.support.trial import connections_of

pytestmark = pytest.mark.anyio

HOURLY = TokenBucket(10, 3600, name="hourly")
SHARED = TokenBucket(5, 3600, name="shared")


@pytest.fixture
async def store(cluster: RedisCluster) -> AsyncIterator[RedisStore]:
    """A store on it; a test fails where this process decides."""
    async with open_on(cluster) as store:
        yield store


@asynccontextmanager
async def open_on(cluster: RedisCluster, **options: Any) -> AsyncIterator[RedisStore]:
    store = RedisStore(cluster.url, **{"timeout": 30, "on_error": "deny", **options})
    yield store
    await store.aclose()


def on_all(cluster: RedisCluster, *command: Any) -> None:
    for node in cluster.primaries:
        asked(node, *command)


def calls(cluster: RedisCluster) -> list[int]:
    """How often each primary was called."""
    return [script_calls(node) for node in cluster.primaries]


def of(name: str, *quotas: Any, cost: float = 1) -> tuple[Charge, ...]:
    return tuple(Charge(quota, name, cost) for quota in quotas)


async def take(store: RedisStore, *charges: Charge, max_wait: float = 0.0, best_effort: bool = False) -> Decision:
    (decision,) = await store.take([Take(charges, max_wait, best_effort)])
    return decision


async def left(store: RedisStore, quota: Any, key: str) -> int:
    return (await store.peek(Take((Charge(quota, key),)))).remaining


async def test_a_limit_holds_on_every_node(store: RedisStore, cluster: RedisCluster) -> None:
    """Keys are spread over the nodes, and each has its own bucket."""
    keys = [cluster.keys_on(at)[0] for at in range(3)]
    decisions = {key: await asyncio.gather(*[take(store, *of(key, HOURLY)) for _ in range(15)]) for key in keys}
    assert {key: sum(d.allowed for d in each) for key, each in decisions.items()} == dict.fromkeys(keys, 10)
    assert all(calls(cluster))


async def test_a_client_can_be_given(cluster: RedisCluster) -> None:
    """Its nodes, credentials and mapping of addresses are used, whatever its other settings are."""
    mapped: list[tuple[str, int]] = []
    url = cluster.url.partition(",")[0].replace("redis+cluster", "redis")
    async with Client.from_url(
        url, max_connections=2, decode_responses=True, address_remap=lambda each: mapped.append(each) or each
    ) as client:
        mapped.clear()
        store = RedisStore(client, timeout=30, on_error="deny")
        decisions = await asyncio.gather(*[take(store, *of(f"key-{number}", HOURLY)) for number in range(50)])
        await store.aclose()
    assert all(d.allowed and not d.degraded for d in decisions)
    assert mapped


async def test_a_batch_is_one_packet_for_each_node(store: RedisStore, cluster: RedisCluster) -> None:
    """It has one call for each slot."""
    keys = cluster.keys_on(0, 10)
    await take(store, *of(keys[0], HOURLY))  # which reads the topology, and loads the script
    before = calls(cluster)
    await asyncio.gather(*[take(store, *of(key, HOURLY)) for key in keys for _ in range(3)])
    first, *others = [now - then for now, then in zip(calls(cluster), before)]
    assert len(keys) <= first <= len(keys) + 1  # the very first take goes alone
    assert others == [0, 0]


async def test_calls_for_hundreds_of_slots_need_few_connections(store: RedisStore, cluster: RedisCluster) -> None:
    """A batch has one call for each slot, and Redis decides all of them."""
    decisions = await asyncio.gather(*[take(store, *of(key, HOURLY)) for key in cluster.keys_on(0, 300)])
    assert not any(decision.degraded for decision in decisions)
    assert connections_of(cluster.primaries[0]) <= MOST_CONNECTIONS + 4  # others ask what is where


@pytest.mark.usefixtures("unpublished", "unwatched")
@pytest.mark.parametrize(("longest", "times"), [(-1.0, 3), (1e6, 1)])
async def test_a_connection_that_a_node_closes_while_it_is_idle(
    store: RedisStore, cluster: RedisCluster, monkeypatch: pytest.MonkeyPatch, longest: float, times: int
) -> None:
    """The next take opens another one, and Redis decides it; so does a single command. One may not close in time."""
    monkeypatch.setattr(nodes, "LONGEST_IDLE_S", -1.0)
    monkeypatch.setattr(clients, "LONGEST_IDLE_S", -1.0)
    charges = of(cluster.keys_on(0)[0], HOURLY)
    await take(store, *charges)  # which reads the topology, over connections that are older than its node here
    monkeypatch.setattr(nodes, "LONGEST_IDLE_S", longest)
    for _ in range(times):
        await asyncio.to_thread(asked, cluster.primaries[0], "CLIENT", "KILL", "TYPE", "normal")
        assert not (await take(store, *charges)).degraded
        await store.reset(charges)
    with monkeypatch.context() as patch:  # as where a node is frozen, over TLS
        patch.setattr("redis.asyncio.cluster.ClusterNode.disconnect", lambda _: asyncio.wait_for(asyncio.sleep(1), 0))
        assert not (await take(store, *charges)).degraded


async def test_an_opening_that_ends_too_late_leaves_nothing(
    cluster: RedisCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Another client is there by then, which stays, and asyncio has nothing to log."""
    begun, go_on, initialize = list[Client](), asyncio.Event(), Client.initialize

    async def initialized(client: Client) -> Client:
        begun.append(client)
        if len(begun) == 1:
            await go_on.wait()
        return await initialize(client)

    monkeypatch.setattr(Client, "initialize", initialized)
    async with open_on(cluster, timeout=1) as store:
        with pytest.raises(StoreTimeout):
            await store.reset(of("key", HOURLY))
        await store.reset(of("key", HOURLY))
        go_on.set()
        await store.reset(of("key", HOURLY))
        await asyncio.to_thread(asked, cluster.primaries[0], "PING")  # meanwhile, the first one is open
        assert len(begun) == 2
    begun.clear()
    gc.collect()
    assert [record for record in caplog.records if record.name == "asyncio"] == []


async def test_a_command_that_fails_leaves_nothing(store: RedisStore, cluster: RedisCluster) -> None:
    """No connection to a node that answers, either: Python complains of those, which fails a test."""
    gone, well = [of(cluster.keys_on(at)[0], HOURLY) for at in range(2)]
    await store.reset([*gone, *well])
    await asyncio.to_thread(asked, cluster.primaries[0], "CLIENT", "KILL", "TYPE", "normal")
    with pytest.raises(StoreUnavailable):
        await store.reset(gone)
    await store.aclose()
    gc.collect()


async def test_keys_in_several_slots_are_all_or_nothing(store: RedisStore, cluster: RedisCluster) -> None:
    """What one node grants is given back where another one refuses, which leaves no keys."""
    own, shared = cluster.keys_on(0)[0], cluster.keys_on(2)[0]
    decisions = [await take(store, *of(own, HOURLY), *of(shared, SHARED)) for _ in range(8)]
    assert [d.allowed for d in decisions] == [True] * 5 + [False] * 3
    assert (decisions[-1].quota, [state.remaining for state in decisions[-1].states]) == (SHARED, [5, 0])
    assert 0 < decisions[-1].retry_after <= 3600 / 5
    assert (await left(store, HOURLY, own), await left(store, SHARED, shared)) == (5, 0)
    assert sum(asked(node, "dbsize") for node in cluster.primaries) == 2


async def test_a_refusal_is_remembered(store: RedisStore, cluster: RedisCluster) -> None:
    """The denial cache answers also for a take with keys in several slots."""
    own, shared = cluster.keys_on(0)[0], cluster.keys_on(2)[0]
    for _ in range(6):
        await take(store, *of(own, HOURLY), *of(shared, SHARED))
    before = calls(cluster)
    decisions = [await take(store, *of(own, HOURLY), *of(shared, SHARED)) for _ in range(50)]
    assert not any(d.allowed for d in decisions)
    assert calls(cluster) == before


async def test_a_refund_and_a_reset_reach_every_node(store: RedisStore, cluster: RedisCluster) -> None:
    """Each charge is given back, or charged more, where it was booked; then all buckets are as never used."""
    own, shared = cluster.keys_on(0)[0], cluster.keys_on(2)[0]
    limiter = Limiter(HOURLY, store=store)
    first, second = [await limiter.take([*of(own, HOURLY), *of(shared, SHARED)]) for _ in range(2)]
    await limiter.refund(first)
    await limiter.settle(second, 3)
    assert (await left(store, HOURLY, own), await left(store, SHARED, shared)) == (7, 2)
    await store.reset([*of(own, HOURLY), *of(shared, SHARED)])
    assert (await left(store, HOURLY, own), await left(store, SHARED, shared)) == (10, 5)


@pytest.mark.parametrize("max_wait", [0.5, 9.0])
async def test_a_paced_take_over_several_slots_is_not_booked_ahead(cluster: RedisCluster, max_wait: float) -> None:
    """It is refused with the longest wait of its parts, charges nothing, and is granted after that wait."""
    clock = SteppedClock()
    own, shared = cluster.keys_on(0)[0], cluster.keys_on(2)[0]
    slow, quick = TokenBucket(1, 1, burst=1, name="slow"), TokenBucket(10, 1, burst=1, name="quick")
    async with open_on(cluster, clock=clock) as store:
        both = *of(own, slow), *of(shared, quick)
        first = await take(store, *both, max_wait=max_wait)
        assert (first.allowed, first.delay) == (True, 0.0)
        refused = await take(store, *both, max_wait=max_wait)
        assert (refused.allowed, refused.retry_after, refused.quota) == (False, 1.0, slow)
        assert (await take(store, *of(shared, quick), max_wait=9)).delay == pytest.approx(0.1)
        clock.advance(1.0)
        last = await take(store, *both, max_wait=max_wait)
        assert (last.allowed, last.delay) == (True, 0.0)


async def until_back(store: RedisStore, key: str) -> int:
    """Take until the cluster decides again; returns how many takes that needed."""
    for taken in range(1, 300):
        if not (await take(store, *of(key, HOURLY))).degraded:
            return taken
        await asyncio.sleep(0.05)
    pytest.fail("the cluster does not come back")


@pytest.mark.parametrize("is_elsewhere", [False, True])
async def test_closing_charges_each_node_with_what_was_admitted_without_it(
    cluster: RedisCluster, monkeypatch: pytest.MonkeyPatch, is_elsewhere: bool
) -> None:
    """As on one Redis, also where no take comes after the outage, and on an event loop that knows no node."""
    monkeypatch.setattr(nodes, "REPAID_TOGETHER", 1)
    keys = [cluster.keys_on(at)[0] for at in range(3)]
    async with open_on(cluster, on_error="local") as store, open_on(cluster) as other:
        assert not (await take(store, *[Charge(HOURLY, key) for key in keys])).degraded
        on_all(cluster, "CONFIG", "SET", "maxmemory", 1)
        assert [(await take(store, Charge(HOURLY, key, 4))).degraded for key in keys] == [True] * 3
        on_all(cluster, "CONFIG", "SET", "maxmemory", 0)
        await (asyncio.to_thread(asyncio.run, store.aclose()) if is_elsewhere else store.aclose())
        assert [await left(other, HOURLY, key) for key in keys] == [5] * 3


async def test_an_idle_event_loop_charges_nodes_that_it_has_just_come_to_know(cluster: RedisCluster) -> None:
    """The cluster was out before it had said which node has what."""
    keys = [cluster.keys_on(at)[0] for at in range(3)]
    async with open_on(cluster, on_error="local") as store, open_on(cluster) as other:

        async def are_charged() -> bool:
            return [await left(other, HOURLY, key) for key in keys] == [6] * 3

        on_all(cluster, "ACL", "SETUSER", "default", "-cluster")
        assert [(await take(store, Charge(HOURLY, key, 4))).degraded for key in keys] == [True] * 3
        on_all(cluster, "ACL", "SETUSER", "default", "+@all")
        await until_async(are_charged)


async def test_a_failure_in_the_middle_of_a_batch(
    cluster: RedisCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It concerns only the takes that have met it: those that were carried out before are not charged a second time."""
    monkeypatch.setattr(outage, "RETRY_EVERY_US", 0.0)
    well, ill = cluster.keys_on(0, 2)
    async with open_on(cluster, on_error="local") as store:
        await take(store, *of("other", HOURLY))
        on_all(cluster, "ACL", "SETUSER", "default", "resetkeys", f"~*{{{well}}}*", "~*{other}*")
        decisions = await asyncio.gather(*[take(store, *of(key, HOURLY)) for key in (well, ill)])
        on_all(cluster, "ACL", "SETUSER", "default", "allkeys")
        assert [decision.degraded for decision in decisions] == [False, True]
        taken = await until_back(store, ill)
    async with open_on(cluster) as store:
        assert [await left(store, HOURLY, key) for key in (well, ill)] == [9, 9 - taken]
    assert "ACL SETUSER" in caplog.text  # each server has words of its own, and the hint is ours


@pytest.mark.parametrize("on_error", ["deny", "local"])
async def test_one_of_two_slots_fails(cluster: RedisCluster, monkeypatch: pytest.MonkeyPatch, on_error: str) -> None:
    """The whole take is decided without the store, and what one node has taken already goes back."""
    monkeypatch.setattr(outage, "RETRY_EVERY_US", 0.0)
    well, ill = cluster.keys_on(0, 2)
    async with open_on(cluster, on_error=on_error) as store:
        await take(store, *of("other", HOURLY))
        on_all(cluster, "ACL", "SETUSER", "default", "resetkeys", f"~*{{{well}}}*", "~*{other}*")
        decision = await take(store, *of(well, HOURLY), *of(ill, HOURLY))
        assert (decision.allowed, decision.degraded) == (on_error == "local", True)
        on_all(cluster, "ACL", "SETUSER", "default", "allkeys")
        await until_back(store, "other")
    async with open_on(cluster) as store:
        assert [await left(store, HOURLY, key) for key in (well, ill)] == [10 - decision.allowed] * 2


@pytest.mark.parametrize("iterations", range(10))
async def test_a_reset_beside_a_refused_take_over_several_slots(
    cluster: RedisCluster, store: RedisStore, iterations: int
) -> None:
    """A bucket that is reset before its refusal is known is not refused, whichever of the two is sent first."""
    full, well = cluster.keys_on(0)[0], cluster.keys_on(1)[0]
    await take(store, *of(full, SHARED, cost=5))
    taking = asyncio.ensure_future(take(store, *of(full, SHARED), *of(well, SHARED)))
    for _ in range(iterations):
        await asyncio.sleep(0)
    await store.reset(of(full, SHARED))
    await taking
    assert (await take(store, *of(full, SHARED))).allowed


async def test_a_caller_that_gives_up_in_the_middle_of_a_refusal(cluster: RedisCluster) -> None:
    """What other keys have given is given back all the same."""
    full, well = cluster.keys_on(0)[0], cluster.keys_on(1)[0]
    async with open_on(cluster) as store:
        await take(store, *of(full, SHARED, cost=5))
        for iterations in range(20):
            taking = asyncio.ensure_future(take(store, *of(well, HOURLY, cost=10), *of(full, SHARED)))
            for _ in range(iterations):
                await asyncio.sleep(0)
            taking.cancel()
    async with open_on(cluster) as store:
        assert await left(store, HOURLY, well) == 10


async def test_a_cluster_that_does_not_answer() -> None:
    """This process decides takes, and a peek raises the reason."""
    store = RedisStore("redis+cluster://127.0.0.1:1,127.0.0.1:2", timeout=30)
    assert (await take(store, *of("key", HOURLY))).degraded
    with pytest.raises(StoreUnavailable, match="Cluster"):
        await store.peek(Take(of("key", HOURLY)))
    await store.aclose()


async def test_a_scan_sees_all_primaries(cluster: RedisCluster, store: RedisStore) -> None:
    """Whichever node it is pointed at."""
    limiter = Limiter("10/day; 5/hour fixed", store=store, name="name")
    await asyncio.gather(*[limiter.rate_limit(f"key {number}") for number in range(40)])
    assert len(await Scan(cluster.url.split(",")[0]).buckets(most=100_000)) == 80
    assert len(await Scan(cluster.url).buckets("name", "key 7", most=100_000)) == 2
