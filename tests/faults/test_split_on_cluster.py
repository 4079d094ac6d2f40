"""Nodes of a cluster that are out while a request takes in parts, each of which is split by node again."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asgi_ratelimit import RateLimitMiddleware, RedisStore, TokenBucket
from asgi_ratelimit.hooks import Event, StoreCall
from asgi_ratelimit.stores.redis.outage import breaker, repayer
from tests.support.asgi import ask, ok
from tests.support.examples import up_to
from tests.support.redis_cluster import RedisCluster, asked
from tests.support.split_takes import all_used, keyed

pytestmark = pytest.mark.anyio

ALL_WELL: frozenset[int] = frozenset()


@pytest.fixture(autouse=True)
def _untimed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that was out is tried again by the next call, and one that closes is charged with all of the ledger."""
    monkeypatch.setattr(breaker, "PROBE_INTERVAL_US", 0.0)
    monkeypatch.setattr(repayer, "CLOSE_WITHIN", 30.0)


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisCluster]:
    """A cluster for this module, of which each rule has a node."""
    with RedisCluster() as own:
        for node in own.primaries:
            asked(node, "CONFIG", "SET", "cluster-node-timeout", 60_000)  # a busy machine does not pass for an outage
        yield own


class Site:
    """An app on an empty cluster, with three rules of 45 quotas, of which some are small; a request costs 5.

    ``calls`` counts those of all nodes, and ``after`` says what happens after one of them.
    """

    def __init__(self, cluster: RedisCluster, small: Collection[tuple[int, int]], limit: float) -> None:
        self._cluster = cluster
        self.out(ALL_WELL)
        cluster.flush()
        self._quotas = [
            [TokenBucket(limit if (rule, at) in small else 100, 86_400 * 365, name=f"q{at}") for at in range(45)]
            for rule in range(3)
        ]
        self.events: list[Event] = []
        self.calls = 0
        self.after: dict[int, Collection[int]] = {}
        self._store = RedisStore(cluster.url, timeout=30)  # an answer that is late is charged to the ledger, too
        self._store.observe(self)
        rules = [keyed(rule, *each, cost=5) for rule, each in enumerate(self._quotas)]
        self._app = RateLimitMiddleware(ok, rules=rules, store=self._store, hooks=[self.events.append])

    def store_called(self, _: StoreCall) -> None:
        self.calls += 1
        if self.calls in self.after:
            self.out(self.after[self.calls])

    def out(self, nodes: Collection[int]) -> None:
        """These nodes are full of memory from now on, and no others; what they have stays there."""
        for at, node in enumerate(self._cluster.primaries):
            asked(node, "CONFIG", "SET", "maxmemory", int(at in nodes))

    async def requests(self, count: int = 1) -> list[int]:
        """The statuses of so many requests at once."""
        return [peer.status for peer in await asyncio.gather(*[ask(self._app) for _ in range(count)])]

    async def used(self) -> list[set[float]]:
        """How many units of the quotas of each rule are used, when the cluster has been charged with the ledger."""
        self.out(ALL_WELL)
        await self._store.aclose()
        store = RedisStore(self._cluster.url)
        units = await all_used(store, self._quotas)
        await store.aclose()
        return units


@pytest.mark.parametrize("full", [None, 0, 1, 2])
@pytest.mark.parametrize("out", [0, 1, 2])
async def test_a_node_that_is_out(cluster: RedisCluster, out: int, full: int | None) -> None:
    """The others are well: a refused request changes nothing on any node, and another one is charged on each."""
    site = Site(cluster, [] if full is None else [(full, 44)], 5)
    assert await site.requests() == [200]
    site.out([out])
    assert await site.requests() == [200 if full is None else 429]
    assert [event.decision.degraded for event in site.events] in ([False, full is None], [False, True])
    assert await site.used() == [{10 if full is None else 5}] * 3


async def test_a_node_that_goes_out_before_it_gives_back(cluster: RedisCluster) -> None:
    """What it granted while another node refused the same part is given back when it is back."""
    site = Site(cluster, [(1, 44)], 5)
    assert await site.requests() == [200]
    site.after[site.calls + 4] = [2]  # two nodes have answered the first part, and two the second one
    assert await site.requests() == [429]
    assert await site.used() == [{5}] * 3


@given(
    states=st.lists(st.frozensets(st.integers(0, 2)), min_size=1, max_size=6),
    small=st.sets(st.tuples(st.integers(0, 2), st.integers(0, 44)), max_size=2),
    at_once=st.integers(1, 3),
)
@up_to(80)
async def test_nodes_that_go_and_come_back(
    cluster: RedisCluster, states: list[frozenset[int]], small: set[tuple[int, int]], at_once: int
) -> None:
    """Each bucket is charged for the requests that passed, once each, and for no other."""
    site, statuses = Site(cluster, small, 15), []
    for nodes in states:
        site.out(nodes)
        statuses += await site.requests(at_once)
    assert set(statuses) <= {200, 429}
    assert await site.used() == [{5 * statuses.count(200)}] * 3
