"""``hold``: a place of each quota in flight is held in a block, and comes back at its end, however that comes."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from threading import Barrier, Thread
from typing import Any
from unittest.mock import AsyncMock

import pytest

from asgi_ratelimit import ConfigurationError, Limiter, Overrides, PaceTimeout, RedisStore, SyncLimiter, TokenBucket
from asgi_ratelimit.background import see_all_through
from asgi_ratelimit.decision import Charge, Decision, Take
from asgi_ratelimit.errors import StoreUnavailable
from asgi_ratelimit.leases import leases_of
from asgi_ratelimit.quotas import InFlight
from asgi_ratelimit.stores import MemoryStore, Settled, Settlement, Store
from asgi_ratelimit.stores.redis.nodes import Node
from asgi_ratelimit.stores.redis.wire import NumberedTake
from asgi_ratelimit.waiting.drivers import WakeUp
from tests.support.overriding import until, until_async
from tests.support.programs import outcome_of
from tests.support.redis_server import RedisServer

pytestmark = pytest.mark.anyio
QUOTAS = [InFlight(2), TokenBucket(100, 3600)]


@pytest.fixture(params=["memory", "redis"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    """Each kind of store in turn, on the real clock."""
    made: Store = MemoryStore()
    if request.param == "redis":
        made = RedisStore(request.getfixturevalue("redis_url"), timeout=30, on_error="deny")
    yield made
    await made.aclose()


async def left(limiter: Limiter) -> list[int]:
    """What is left of each quota."""
    return [state.remaining for state in (await limiter.peek("key")).states]


class Block:
    """A task that holds a place until it is told to end."""

    def __init__(self, limiter: Limiter, entered: list[int], number: int) -> None:
        self.ends = asyncio.Event()
        self.task = asyncio.ensure_future(self._run(limiter, entered, number))

    async def _run(self, limiter: Limiter, entered: list[int], number: int) -> None:
        async with limiter.hold("key"):
            entered.append(number)
            await self.ends.wait()


async def until_entered(entered: list[int], count: int) -> None:
    """Let the other tasks go on until so many blocks were entered."""
    await until(lambda: len(entered) >= count)


async def test_so_many_are_in_their_blocks_at_once_in_the_order_in_which_they_came(store: Store) -> None:
    """Also if they came by two limiters; who is behind waits until one ends."""
    limiters, entered, blocks = [Limiter(QUOTAS, store=store) for _ in range(2)], list[int](), list[Block]()
    for number in range(6):
        blocks.append(Block(limiters[number % 2], entered, number))
        if number < 2:
            await until_entered(entered, number + 1)
        await limiters[0].peek("key")  # it has asked the store by now
    for number, block in enumerate(blocks):
        assert entered == list(range(min(number + 2, 6)))
        block.ends.set()
        await block.task
        await until_entered(entered, min(number + 3, 6))
    assert await left(limiters[0]) == [2, 94]


async def test_a_place_comes_back_however_its_block_ends(store: Store) -> None:
    """By an exception, or as its task is cancelled."""
    limiter, entered = Limiter(QUOTAS, store=store), list[int]()
    with contextlib.suppress(ZeroDivisionError):
        async with limiter.hold("key") as decision:
            assert (decision.allowed, await left(limiter)) == (True, [1, 99])
            raise ZeroDivisionError
    block = Block(limiter, entered, 0)
    await until_entered(entered, 1)
    block.task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await block.task
    assert await left(limiter) == [2, 98]


async def test_without_time_to_wait_it_is_refused_and_takes_nothing(store: Store) -> None:
    """At once with a ``max_delay`` of 0, else when that is over; the same for one that is cancelled as it waits."""
    limiter, entered = Limiter([InFlight(1, retry_after=3.0), TokenBucket(100, 3600)], store=store), list[int]()
    async with limiter.hold("key"):
        for max_delay in (0, 0.15):
            with pytest.raises(PaceTimeout, match=r"no place of 'default' for 'key' within .*, as all 1") as raised:
                async with limiter.hold("key", max_delay=max_delay):
                    pass
            assert (raised.value.decision.retry_after, raised.value.decision.remaining) == (3.0, 0)
        waiting = Block(limiter, entered, 0)
        await asyncio.sleep(0.05)
        assert await limiter.waiting("key") == 1.0
        waiting.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await waiting.task
        assert await left(limiter) == [0, 99]
    assert (await left(limiter), entered) == ([1, 99], [])


class TimeLimit(BaseException):
    """As those by which task queues and greenlets end a thread that waits."""


async def test_who_no_longer_waits_is_in_nobodys_way(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever exception has ended it."""
    limiter = Limiter(InFlight(1), store=store)
    async with limiter.hold("key"):
        monkeypatch.setattr(WakeUp, "in_task", AsyncMock(side_effect=TimeLimit))
        with pytest.raises(TimeLimit):
            await limiter.hold("key").__aenter__()
        assert await limiter.waiting("key") == 0.0


async def test_it_waits_for_a_place_and_for_a_slot(store: Store) -> None:
    """A slot that is too far away refuses at once, and the place stays free."""
    limiter = Limiter([InFlight(1), TokenBucket(10, 1.0, burst=1)], store=store)
    decisions: list[Decision] = []

    async def call() -> None:
        async with limiter.hold("key") as decision:
            decisions.append(decision)

    await asyncio.gather(*[call() for _ in range(4)])
    assert decisions[-1].ready_at - decisions[0].ready_at >= 0.299
    distant = Limiter([InFlight(1), TokenBucket(1, 3600)], store=store, name="distant")
    async with distant.hold("key"):
        pass
    with pytest.raises(PaceTimeout, match="next slot"):
        async with distant.hold("key", max_delay=60):
            pass
    assert await left(distant) == [1, 0]


@pytest.mark.parametrize("cost", [3, {"per-hour": 3}])
async def test_it_holds_one_place_whatever_the_cost(store: Store, cost: float | dict[str, float]) -> None:
    """And what its calls cost really is settled without giving it back."""
    limiter = Limiter(QUOTAS, store=store)
    async with limiter.hold("key", cost) as decision:
        assert await left(limiter) == [1, 97]
        await limiter.settle(decision, 1)
        await limiter.refund(decision)
        assert await left(limiter) == [1, 99]
    assert await left(limiter) == [2, 99]


async def test_keys_name_the_places(store: Store) -> None:
    """A call that names what it costs holds a place as well, whose key may not be missing."""
    with pytest.raises(ValueError, match=re.escape("key names ['per-hour'], and lacks 'at-once'")):
        async with Limiter(QUOTAS, store=store).hold({"per-hour": "ann"}, {"per-hour": 1}):
            pass


async def test_without_async(store: Store) -> None:
    """Threads wait for each other."""
    limiter = SyncLimiter(InFlight(1), store=store)
    inside, most, barrier = 0, 0, Barrier(4)

    def call() -> None:
        nonlocal inside, most
        barrier.wait()
        with limiter.hold("key"):
            inside += 1
            most = max(most, inside)
            limiter.peek("key")
            inside -= 1

    threads = [Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    assert (most, await asyncio.to_thread(lambda: limiter.peek("key").remaining)) == (1, 1)
    await asyncio.to_thread(limiter.close)


async def test_an_override_applies() -> None:
    """``"shadow"`` counts and holds, and lets everybody in; a limiter without places gets none."""
    store = MemoryStore()
    limiter, rates = Limiter(InFlight(1), store=store, name="jobs"), Limiter("5/hour", store=store, name="rates")
    await Overrides(store).set("jobs", "shadow")
    async with limiter.hold("key"), limiter.hold("key") as second:
        assert (second.allowed, second.shadow, await left(limiter)) == (True, True, [0])
    await Overrides(store).set("jobs", "3 at once")
    assert await left(limiter) == [3]
    await Overrides(store).set("rates", "3 at once")
    assert [(await rates.rate_limit("key")).remaining for _ in range(2)] == [4, 3]


async def test_what_has_no_end_shows_how_it_is_held() -> None:
    """Nobody would give the place back."""
    limiter = Limiter("5 at once; 100/minute")
    calls: list[Any] = [limiter.rate_limit, limiter.pace, limiter.acquire, limiter.reserve]
    for call in [*calls, lambda key: limiter.take([Charge(InFlight(5), key)])]:
        with pytest.raises(ConfigurationError, match=r'5 at once.*" needs a block'):
            await call("key")
    with pytest.raises(ConfigurationError, match=r"async with limiter\.hold"):
        limiter.spend("key", 1)
    with pytest.raises(TypeError, match=r"async with limiter\.hold"):
        assert limiter.hold("key")


async def test_what_is_held_is_renewed_and_given_back_without_a_wait(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the background loop, for as long as it is held; a release waits for no answer."""
    monkeypatch.setattr("asgi_ratelimit.leases.YOUNG_US", 0.0)
    monkeypatch.setattr("asgi_ratelimit.leases.RENEWED_EVERY", 0.01)
    limiter, leases = Limiter(InFlight(2), store=store), leases_of(store)
    (decision,) = await store.take([Take(limiter.charges("key"))])
    leases.hold(decision)
    before = (await limiter.peek("key")).ready_at

    async def is_renewed() -> bool:
        peeked = await limiter.peek("key")
        return peeked.now_us / 1e6 + peeked.reset_after > before + 30.05

    await until_async(is_renewed)
    assert leases.held_by_name() == {"default": 1}
    leases.release(decision)
    leases.release(decision)
    await see_all_through(store)
    assert (leases.held_by_name(), await left(limiter)) == ({}, [2])


async def test_a_release_after_one_whose_task_was_cancelled_goes_at_once(redis_url: str) -> None:
    """Nothing else on the event loop can keep a place from coming back."""
    limiter = Limiter(InFlight(2), store=RedisStore(redis_url))
    leases, others = leases_of(limiter.store), asyncio.all_tasks()
    decisions = [(await limiter.store.take([Take(limiter.charges("key"))]))[0] for _ in range(2)]
    for each in decisions:
        leases.hold(each)
        leases.release(each)
        if each is decisions[0]:
            for task in asyncio.all_tasks() - others:
                task.cancel()
            await asyncio.sleep(0)
    await see_all_through(limiter.store)
    assert await left(limiter) != [0]
    await limiter.aclose()


async def test_hundreds_that_are_held_are_renewed_and_given_back_some_at_a_time(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands need more than the deadline that all have that are sent together; they would end after a while."""
    store = RedisStore(redis_url, timeout=30)
    limiter, leases, together, answered = Limiter(InFlight(500), store=store), leases_of(store), [0], store.settle

    async def settle(settlements: Sequence[Settlement]) -> list[Settled]:
        if len(together) == 1:
            raise StoreUnavailable("it is out")
        together.append(len(settlements))
        return await answered(settlements)

    monkeypatch.setattr("asgi_ratelimit.leases.YOUNG_US", 0.0)
    monkeypatch.setattr(leases, "start", lambda: None)
    monkeypatch.setattr(store, "settle", settle)
    decisions = await store.take([Take(limiter.charges("key"))] * 500)
    for each in decisions:
        leases.hold(each)
    together.append(0)
    await leases.run()
    assert together[2:] == [100] * 5
    del together[1:]
    for each in decisions:
        await leases.give_back(each)
    together.append(0)
    await leases.run()
    assert together[2:] == [100] * 5
    assert await left(limiter) == [500]
    await limiter.aclose()


@pytest.mark.parametrize("is_kept", [False, True])
def test_a_place_that_is_held_or_waited_for_on_a_closed_event_loop(is_kept: bool) -> None:
    """It comes back when the task is dropped, or when leases are renewed: nobody can go on there."""
    limiter, loop, entered = Limiter("1 at once"), asyncio.new_event_loop(), list[int]()

    async def enter() -> list[Any]:
        blocks = [Block(limiter, entered, number) for number in range(2)]
        await until_async(lambda: limiter.waiting("key"))
        return blocks

    kept = loop.run_until_complete(enter())
    loop.close()
    if is_kept:
        asyncio.run(leases_of(limiter.store).run())
    else:
        for block in kept:
            block.task._log_destroy_pending = False
        del block
        kept.clear()
        gc.collect()
    assert asyncio.run(left(limiter)) == [1]


async def test_a_block_may_be_entered_again(store: Store) -> None:
    """Each time it holds another place, and all of them come back."""
    limiter = Limiter(QUOTAS, store=store)
    block = limiter.hold("key")
    async with block, block:
        assert (await left(limiter))[0] == 0
    assert (await left(limiter))[0] == 2


@pytest.mark.parametrize("is_young", [True, False])
async def test_what_ends_while_it_is_renewed_stays_free(
    store: Store, monkeypatch: pytest.MonkeyPatch, is_young: bool
) -> None:
    """What was held for seconds is there again when the renewal is over; what is younger is not renewed yet."""
    limiter, leases = Limiter(InFlight(2), store=store), leases_of(store)
    monkeypatch.setattr(leases, "start", lambda: None)
    if not is_young:
        monkeypatch.setattr("asgi_ratelimit.leases.YOUNG_US", 0.0)
    settle, free = store.settle, list[int]()

    async def late(settlements: Sequence[Settlement]) -> list[Settled]:
        monkeypatch.setattr(store, "settle", settle)
        sent = [replace(each) for each in settlements]
        await leases.give_back(decision)
        settled = await settle(sent)
        free.extend(await left(limiter))
        return settled

    (decision,) = await store.take([Take(limiter.charges("key"))])
    leases.hold(decision)
    monkeypatch.setattr(store, "settle", late)
    await leases.run()
    assert free == ([] if is_young else [1])
    await leases.give_back(decision)
    assert await left(limiter) == [2]


async def test_a_place_comes_back_if_the_store_went_out_before_the_slot(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller has waited for the place, and ``on_error="allow"`` lets it pass without a slot."""
    store = RedisStore(redis_url, timeout=30, on_error="allow")
    limiter, entered, answered = Limiter(QUOTAS, store=store), list[int](), Node.carry_out

    async def carry_out(node: Node, actions: Sequence[Any]) -> list[Any]:
        if any(isinstance(each, NumberedTake) and each.take.charges == rate for each in actions):
            return [StoreUnavailable("it is out")] * len(actions)
        return await answered(node, actions)

    rate = limiter.charges("key")[1:]
    monkeypatch.setattr(Node, "carry_out", carry_out)
    async with limiter.hold("key"), limiter.hold("key"):
        block = Block(limiter, entered, 0)
        await until_async(lambda: limiter.waiting("key"))
    await until_entered(entered, 1)
    assert leases_of(store).held_by_name() == {"default": 1}
    block.ends.set()
    await block.task
    assert leases_of(store).held_by_name() == {}
    await limiter.aclose()


@pytest.mark.parametrize("waiting_before", [3, 0])
async def test_who_waits_for_a_place_gets_it_in_an_outage(server: RedisServer, waiting_before: int) -> None:
    """Soon after it is free, however many wait since when."""
    limiter, entered = Limiter("2 at once", store=RedisStore(server.url)), list[int]()
    blocks = [Block(limiter, entered, number) for number in range(waiting_before + 2)]
    await until_entered(entered, 2)
    if waiting_before:
        await until_async(lambda: limiter.waiting("key"))
    server.stop()
    blocks += [Block(limiter, entered, number) for number in range(5, 10)]
    await until(lambda: len(limiter.store._context.outage.local))  # type: ignore[attr-defined]  # one looks here
    for block in blocks:
        block.ends.set()
    await asyncio.wait_for(asyncio.gather(*[block.task for block in blocks]), 10.0)  # less than half a lease
    server.start()  # or places would be given back again and again
    await until(lambda: not leases_of(limiter.store)._ended)
    await limiter.aclose()


FORKING = """
    import os, sys
    from asgi_ratelimit import SyncLimiter, leases, open_store
    from asgi_ratelimit.background import background_loop

    leases.YOUNG_US, leases.RENEWED_EVERY = 0.0, 1e6  # all is renewed, when the test says so
    options = {} if sys.argv[1] == "memory://" else {"timeout": 30, "on_error": "deny"}
    store = open_store(sys.argv[1], **options)
    limiter = SyncLimiter("3 at once", store=store)

    def ends():
        return [end for _, end in limiter.peek("key").stored[0].leases]

    def renewed():
        before, own = ends(), leases.leases_of(store)
        background_loop.run(own.run())
        return own.held_by_name()["default"], [now > then for now, then in zip(ends(), before)]

    block = limiter.hold("key")
    block.__enter__()
    child = os.fork()
    if child == 0:
        assert renewed() == (0, [False])
        with limiter.hold("key"):
            assert renewed() == (1, [False, True])
        block.__exit__()
        assert len(ends()) == 1
        limiter.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert renewed() == (1, [True])
    block.__exit__()
    assert ends() == []
    limiter.close()
"""


@pytest.mark.parametrize("is_shared", [False, True], ids=["memory", "redis"])
def test_a_forked_child_has_none_of_its_parents_places(redis_url: str, is_shared: bool) -> None:
    """It neither renews them nor gives them back, and holds places of its own."""
    url = redis_url if is_shared else "memory://"
    assert outcome_of(FORKING, url, "-W", "ignore::DeprecationWarning") == (0, "", "")  # of os.fork
