"""Operations over a broken network: an answer that is lost is asked for again, and nothing is charged twice."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import count

import pytest

from asgi_ratelimit.decision import Charge, Decision, Take
from asgi_ratelimit.limiter import Limiter, UnownedLimiter
from asgi_ratelimit.stores import RedisStore
from tests.faults.test_answers import FAULTS
from tests.faults.test_network import GARBAGE, evaluations
from tests.support.children import run_together
from tests.support.operators import QUOTA as MANY
from tests.support.proxy import Proxy
from tests.support.redis_cluster import RedisCluster, asked
from tests.support.redis_server import RedisServer
from tests.support.server import HOST
from tests.support.trial import GRACE, PATIENT, QUOTA, Trial, hurried, settled, trial, until_left

pytestmark = pytest.mark.anyio


@pytest.fixture
async def limiter(proxy: Proxy) -> AsyncIterator[Limiter]:
    """A limiter behind the proxy, with a deadline that does not pass."""
    async with Limiter(QUOTA, store=RedisStore(proxy.url, timeout=30)) as made:
        await made.rate_limit("key", 10)
        yield made


def once(mangle: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    """Mangle the next answer of the script only."""
    pending = [mangle]
    return lambda answer: pending.pop()(answer) if pending and answer.startswith(b"*") else answer


@pytest.mark.parametrize("mangled", [name for name in GARBAGE if name not in ("cut short", "an error")])
async def test_an_answer_that_makes_no_sense_is_asked_for_again(proxy: Proxy, limiter: Limiter, mangled: str) -> None:
    """The take is answered by Redis, and charged once; one without an id is decided in this process, as ever."""
    proxy.mangle = once(GARBAGE[mangled])
    with_id = Take((Charge(QUOTA, "key"),), operation="id")
    decisions = await limiter.store.take([with_id, Take((Charge(QUOTA, "other"),))])
    assert [(decision.allowed, decision.degraded) for decision in decisions] == [(True, False), (True, True)]
    assert (await limiter.peek("key")).remaining == decisions[0].remaining == 9


async def test_a_connection_that_is_lost_with_a_call_in_flight(
    proxy: Proxy, limiter: Limiter, redis_server: RedisServer
) -> None:
    """Redis has carried it out: it is sent again, and answered as it was decided then."""
    asked(redis_server, "CONFIG", "RESETSTAT")
    proxy.delay = 0.2
    waiting = asyncio.create_task(limiter.pace("key", 4, operation="id"))
    await settled(lambda: evaluations(redis_server) == 1)
    proxy.delay = 0.0
    proxy.disconnect()
    decision = await waiting
    assert (decision.degraded, decision.remaining, evaluations(redis_server)) == (False, 6, 2)
    await limiter.refund(decision)
    assert (await limiter.peek("key")).remaining == 10


async def test_settlements_and_redemptions_whose_answer_is_lost(proxy: Proxy, limiter: Limiter) -> None:
    """They are sent again, and have an effect once."""
    decision, ticket = await limiter.rate_limit("key", 4), await limiter.reserve("key", 2)
    for verb in (limiter.refund(decision), limiter.redeem(ticket)):
        proxy.mangle = once(GARBAGE["a number"])
        answer = await verb
    assert answer is not None
    assert answer.allowed
    assert not await limiter.redeem(ticket)
    assert (await limiter.peek("key")).remaining == 8


async def test_an_answer_that_is_lost_twice(proxy: Proxy, redis_server: RedisServer) -> None:
    """This process decides; the ledger repays it under the same id, so it is not charged again: exactly the quota."""
    asked(redis_server, "CONFIG", "RESETSTAT")
    async with trial(proxy.url, redis_server) as tried:
        await takes(tried, range(10))
        proxy.mangle = lambda answer: GARBAGE["a number"](answer) if answer.startswith(b"*") else answer
        (lost,) = await takes(tried, [10])
        assert lost.degraded
        proxy.mangle = bytes
        await tried.until_back()
        await until_left(tried.limiter, QUOTA.burst - 11)
        await takes(tried, range(40))
        assert tried.admitted() == QUOTA.burst + 11  # these were sent twice, and charged once
        assert len({each.take.operation for each in tried.decisions if each and each.take.operation}) == QUOTA.burst


async def test_an_answer_that_does_not_come(proxy: Proxy, redis_server: RedisServer) -> None:
    """There is no time to ask again; but it is not charged again either."""
    async with trial(proxy.url, redis_server) as tried:
        await takes(tried, range(10))
        proxy.mangle = lambda answer: b""
        async with hurried():
            assert all(decision.degraded for decision in await takes(tried, range(8, 15)))
        proxy.mangle = bytes
        await tried.until_back()
        await until_left(tried.limiter, QUOTA.burst - 15)


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """A Redis for one test, to be reconfigured."""
    with RedisServer() as own:
        yield own


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_redis_that_refuses(server: RedisServer, fault: Callable[[RedisServer], Callable[[], None]]) -> None:
    """Before, during and after it, takes with ids admit exactly the quota."""
    asked(server, "ACL", "SETUSER", "limiter", "on", ">secret", "~*", "+@all")
    async with trial(f"redis://limiter:secret@{HOST}:{server.port}", server) as tried:
        await takes(tried, range(10))
        repair = fault(server)
        assert all(decision.degraded for decision in await takes(tried, range(10, 16)))
        repair()
        await tried.until_back()
        await until_left(tried.limiter, QUOTA.burst - 16)
        await takes(tried, range(10, 60))
        assert len({each.take.operation for each in tried.decisions if each and each.take.operation}) == QUOTA.burst
        assert (await tried.limiter.peek("key")).remaining == 0


async def test_an_operation_of_an_outage_that_another_process_repeats(server: RedisServer) -> None:
    """Redis is charged with it afterwards, and answers with what is left; it is not charged again."""
    async with trial(server.url, server) as tried:
        await takes(tried, range(3))
        asked(server, "CONFIG", "SET", "maxmemory", "1")
        (degraded,) = await takes(tried, [3])
        assert degraded.degraded
        asked(server, "CONFIG", "SET", "maxmemory", "0")
        await tried.until_back()
        await until_left(tried.limiter, QUOTA.burst - 4)
        async with UnownedLimiter(QUOTA, store=RedisStore(server.url, timeout=30), name=tried.limiter.name) as other:
            repeated = await other.rate_limit("key", operation="3")
            assert (repeated.allowed, repeated.remaining, repeated.delay) == (True, QUOTA.burst - 4, 0.0)
            assert (await other.peek("key")).remaining == QUOTA.burst - 4


async def takes(tried: Trial, numbers: range | list[int]) -> list[Decision]:
    """Decisions of one key, at once, each under the id of its number."""
    async with asyncio.timeout(PATIENT + GRACE):
        decisions = await asyncio.gather(*[tried.limiter.rate_limit("key", operation=f"{n}") for n in numbers])
    tried.decisions += decisions
    return decisions


async def test_a_hundred_stores_in_four_processes(proxy: Proxy, redis_server: RedisServer) -> None:
    """They send one operation at once, and again and again while all lines are cut: it is charged once.

    Only answers of the script count. Were the greetings of new connections counted too, the hundred stores, which
    connect at once, could be cut off at each try before any of them has sent a take.
    """
    answered = count(1)

    def cut(answer: bytes) -> bytes:
        if answer.startswith(b"*") and next(answered) % 100 == 0:
            proxy.disconnect()
        return answer

    proxy.mangle = cut
    command = ("-m", "tests.support.operators", proxy.url, "25", "id")
    outputs = await asyncio.to_thread(run_together, [command] * 4, "go", 60)
    assert proxy.connections > 200
    answers = [tuple(answer) for output in outputs for answer in json.loads(output)]
    assert len(answers) == 1_000
    stored = [answer for answer in answers if not answer[1]]
    assert len(set(stored)) == 1
    assert stored[0][:3] == (True, False, MANY.burst - 1)
    async with Limiter(MANY, store=RedisStore(redis_server.url, timeout=30)) as limiter:
        assert (await limiter.rate_limit("key", operation="id")).remaining == MANY.burst - 1
        assert (await limiter.peek("key")).remaining == MANY.burst - 1


async def test_an_operation_on_a_cluster_whose_lines_are_cut() -> None:
    """Of a hundred stores on keys of two nodes: charged once in each part."""
    with RedisCluster() as cluster:
        keys = {"per-day": "a", "other": "b"}
        quotas = (QUOTA, type(QUOTA)(20, 86_400, name="other"))
        limiters = [Limiter(quotas, store=RedisStore(cluster.url, timeout=30)) for _ in range(100)]
        for _ in range(3):
            sending = [asyncio.create_task(each.rate_limit(keys, operation="id")) for each in limiters]
            await asyncio.sleep(0.01)
            for node in cluster.primaries:
                asked(node, "CLIENT", "KILL", "TYPE", "normal")
            decisions = await asyncio.gather(*sending)
            assert all(decision.allowed for decision in decisions)
        peeked = await limiters[0].peek(keys)
        await asyncio.gather(*[each.aclose() for each in limiters])
    assert [state.remaining for state in peeked.states] == [19, 19]
