"""Places over several processes: no more are held than the limit, and none is lost, whatever becomes of the processes.

``python -m tests.limiter.test_leases redis://localhost 0 2000`` runs so many histories from the command line, on both
stores.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import pytest

from asgi_ratelimit import Charge, Decision, MemoryStore, PaceTimeout, RedisStore, Store, StoreUnavailable, Take
from asgi_ratelimit.leases import TRIED_EVERY, Leases, PlaceWaiter, leases_of
from asgi_ratelimit.quotas import LEASE_US, InFlight
from asgi_ratelimit.stores.redis.nodes import Node
from asgi_ratelimit.testing import SteppedClock
from asgi_ratelimit.waiting.drivers import WakeUp
from tests.support.examples import FACTOR

HISTORIES = round(60 * FACTOR)
KEYS = ("ann", "bob")
REPLICAS = 3
LEASE = LEASE_US / 1e6
RENEWED_EVERY = 10


class Waiting:
    """A caller that waits for a place, whose next look comes when the history says so."""

    def __init__(self, process: Process, key: str, max_wait: float) -> None:
        self.key, self.process = key, process
        self._flow = PlaceWaiter(process.store).wait_for_all(process.take(key, max_wait))
        self._resume: Any = lambda: next(self._flow)

    async def go_on(self) -> Decision | None:
        """Its decision, or ``None`` while it waits. Raises ``PaceTimeout``."""
        while True:
            try:
                step = self._resume()
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]  # StopIteration is not generic
            self._resume = lambda: self._flow.send(None)
            if isinstance(step, WakeUp):
                return None
            try:
                answer = await step.in_task()
            except Exception as error:  # noqa: BLE001  # the flow handles it
                self._resume = lambda raised=error: self._flow.throw(raised)
            else:
                self._resume = lambda value=answer: self._flow.send(value)

    async def cancel(self) -> None:
        """It gives back what it has."""
        self._resume = lambda: self._flow.throw(asyncio.CancelledError())
        with pytest.raises(asyncio.CancelledError):
            await self.go_on()


@dataclass(eq=False)
class Process:
    """A process that holds places, and has callers that wait."""

    store: Store
    quota: InFlight
    name: str
    leases: Leases = field(init=False)
    held: list[tuple[str, Decision]] = field(default_factory=list)
    waiting: list[Waiting] = field(default_factory=list)

    def take(self, key: str, max_wait: float = 0.0) -> Take:
        """A place of this key."""
        return Take((Charge(self.quota, key, 1, self.name),), max_wait)

    def count(self, key: str) -> int:
        """How many places of a key it holds."""
        return sum([each == key for each, _ in self.held])


class History:
    """Random starts, waits, ends, cancels, kills and outages of a few processes on one store."""

    def __init__(self, seed: int, url: str | None, clock: SteppedClock) -> None:
        self.r = r = random.Random(seed)
        self.clock, self.url, self.name = clock, url, f"history {seed}"
        self.quota = InFlight(r.choice([3, 3, 4, 7]))
        self.memory = MemoryStore(clock=clock)
        self.processes = [self.started() for _ in range(REPLICAS)]
        self.is_out = self.has_killed = False

    def started(self) -> Process:
        """Another process; in memory, all are on one store, each with leases of its own."""
        if self.url is None:
            process = Process(OneOfMany(self.memory), self.quota, self.name)
        else:
            store = RedisStore(self.url, clock=self.clock, timeout=30, replicas=REPLICAS)
            process = Process(store, self.quota, self.name)
        process.leases = leases_of(process.store)
        return process

    async def run(self) -> None:
        """Up to a hundred steps, and then the end of all."""
        r = self.r
        steps = [self.start, self.start, self.start, self.end, self.end, self.wait, self.look, self.look, self.move]
        rare = [self.cancel, self.kill, self.lose] + [self.go_out, self.come_back] * (self.url is not None)
        for _ in range(r.choice([20, 50, 100])):
            await r.choice(rare if r.random() < 0.2 else steps)()
        await self.end_all()

    async def start(self) -> None:
        """A request takes a place, or is refused."""
        process, key = self.r.choice(self.processes), self.r.choice(KEYS)
        (decision,) = await process.store.take([process.take(key)])
        if decision.allowed:
            process.leases.hold(decision)
            self.admit(process, key, decision)

    def admit(self, process: Process, key: str, decision: Decision) -> None:
        """What is held never exceeds the limit, or, of a process without the store, its share."""
        process.held.append((key, decision))
        if decision.degraded:
            assert process.count(key) <= max(1, self.quota.limit // REPLICAS)
        else:
            assert sum([each.count(key) for each in self.processes]) <= self.quota.limit

    async def wait(self) -> None:
        """A request waits for a place."""
        process, key = self.r.choice(self.processes), self.r.choice(KEYS)
        process.waiting.append(Waiting(process, key, self.r.choice([0.0, 3.0, 60.0])))
        await self.go_on(process.waiting[-1])

    async def look(self) -> None:
        """Somebody who waits looks."""
        waiting = [each for process in self.processes for each in process.waiting]
        if waiting:
            await self.go_on(self.r.choice(waiting))

    async def go_on(self, waiting: Waiting) -> None:
        """One step of one that waits, which then may hold a place."""
        process = waiting.process
        try:
            decision = await waiting.go_on()
        except PaceTimeout:
            process.waiting.remove(waiting)
            return
        if decision is not None:
            process.waiting.remove(waiting)
            self.admit(process, waiting.key, decision)

    async def cancel(self) -> None:
        """Somebody who waits gives up."""
        waiting = [each for process in self.processes for each in process.waiting]
        if waiting:
            given_up = self.r.choice(waiting)
            given_up.process.waiting.remove(given_up)
            await given_up.cancel()

    async def end(self) -> None:
        """A request ends."""
        process = self.r.choice(self.processes)
        if process.held:
            _, decision = process.held.pop(self.r.randrange(len(process.held)))
            await process.leases.give_back(decision)

    async def kill(self) -> None:
        """A process is gone, without a word, and another one begins."""
        self.has_killed = True
        gone = self.processes.pop(self.r.randrange(REPLICAS))
        if self.url is not None:
            await gone.store.aclose()
        self.processes.append(self.started())

    async def lose(self) -> None:
        """The store has lost everything, and all processes renew."""
        if not self.is_out:
            self.clock.advance(0.001)  # or the ids of leases would begin anew
            process = self.processes[0]
            await process.store.reset([process.take(key).charges[0] for key in KEYS])
            await self.renew()

    async def go_out(self) -> None:
        """The store no longer answers."""
        self.is_out = True

    async def come_back(self) -> None:
        """It answers again, and all processes renew as soon as they know."""
        self.is_out = False
        await self.renew()

    async def renew(self) -> None:
        """All processes renew what they hold; what fails is soon tried again, until all is done if Redis answers."""
        for process in self.processes:
            for _ in range(1 if self.is_out else 20):
                if await process.leases.run() != TRIED_EVERY:
                    break
                await asyncio.sleep(0)

    async def move(self) -> None:
        """Time passes, in which all processes renew."""
        for _ in range(self.r.choice([1, 1, 2, 5])):
            self.clock.advance(self.r.choice([0.001, 1, RENEWED_EVERY]))
            await self.renew()

    async def end_all(self) -> None:
        """All end: all places are there again, at once, or when the leases of processes have ended that were killed."""
        await self.come_back()
        for process in self.processes:
            for waiting in process.waiting:
                await waiting.cancel()
            for _, decision in process.held:
                await process.leases.give_back(decision)
        if self.has_killed:
            self.clock.advance(LEASE)
        for process in self.processes:
            for key in KEYS:
                assert (await process.store.peek(process.take(key))).remaining == self.quota.limit
            if self.url is not None:
                await process.store.aclose()


class OneOfMany:
    """A store in memory, as one of several objects that are the same store."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


async def run_all(url: str | None, seeds: Sequence[int]) -> None:
    """Run the histories of these seeds, in which no time passes beside that of the clock."""
    clock, histories = SteppedClock(), list[History]()

    async def carry_out(node: Node, actions: Sequence[Any]) -> list[Any]:
        if histories[-1].is_out:
            return [StoreUnavailable("it is out")] * len(actions)
        return await answered(node, actions)

    answered = Node.carry_out
    with (
        patch.object(Node, "carry_out", carry_out),
        patch("asgi_ratelimit.stores.redis.outage.Breaker.begin_call", return_value=True),
        patch.object(Leases, "start"),
        patch("asgi_ratelimit.leases.YOUNG_US", 0.0),
        patch("asgi_ratelimit.overrides.Watch.start"),
        patch("asgi_ratelimit.counts.Counts.start"),
    ):
        for seed in seeds:
            histories[:] = [History(seed, url, clock)]
            try:
                await histories[-1].run()
            except AssertionError as error:
                error.add_note(f"in the history of seed {seed}")
                raise


@pytest.mark.anyio
async def test_no_more_are_held_than_the_limit_and_none_is_lost_in_memory() -> None:
    """In random histories of starts, waits, ends, cancels and processes that no longer renew."""
    await run_all(None, range(4 * HISTORIES))


@pytest.mark.anyio
async def test_no_more_are_held_than_the_limit_and_none_is_lost_on_redis(redis_url: str) -> None:
    """And with outages, in which each process holds to its share."""
    await run_all(redis_url, range(HISTORIES))


if __name__ == "__main__":
    for number in range(int(sys.argv[2]), int(sys.argv[3]), 100):
        for address in (None, sys.argv[1]):
            asyncio.run(run_all(address, range(number, number + 100)))
        print(number + 100, flush=True)
