"""Places of ``InFlight`` that this process holds: they are leases in the store, which it renews until they end.

A request holds a place from ``Leases.hold`` to ``Leases.release``, and may wait for one with a ``PlaceWaiter``. A lease
that is not renewed ends after half a minute, so the places of a process that was killed come back. While a server is
out, what is held here is counted by the store that stands in for it, and put back into the server afterwards.
"""

from __future__ import annotations

import asyncio
import math
from asyncio import _get_running_loop
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from random import random
from typing import Any, cast

from .algorithms.in_flight import ENDS, HOLDS, LOOK_US, WAITS, InFlightState, has_place
from .algorithms.take import State, place_of
from .background import BesideStore, background_loop, keep, run_in_place
from .buckets import DEFAULT_NAME
from .clock import monotonic_us
from .decision import Decision, Take, is_outage
from .errors import StoreError
from .quotas import LEASE_US, SECOND_US, InFlight
from .stores import ByStore, Settlement, Store, lease_settlement, settle_all, undoing
from .stores.base import joined
from .waiting.drivers import CallStore, Flow, GiveBack, WakeUp
from .waiting.waiter import SlotWaiter, too_late

# Seconds between two renewals of all leases: those that wait for a place end soon without one.
RENEWED_EVERY = 5.0

# Seconds between two renewals while the store does not answer.
TRIED_EVERY = 0.25

# The most leases that are sent to the store together: each of them has to be answered in time.
TOGETHER = 100

# A lease that was held for less is not renewed yet: most requests end before, and their leases with them.
YOUNG_US = 5_000_000.0


def leases_in(decision: Decision, actual: float = HOLDS) -> list[Settlement]:
    """What renews the leases that a decision has taken; not one that waits in this process, in an outage."""
    if not (decision.allowed and decision.id) or (decision.degraded and actual == WAITS):
        return []
    return [
        lease_settlement(charge, state.leases[-1][0], actual)
        for charge, state in zip(decision.take.charges, decision.stored)
        if type(state) is InFlightState and state.leases and charge.cost
    ]


class Leases(BesideStore):
    """The leases of this process on one store. Thread-safe; a forked child has none of its parent's."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        if self._is_attached:
            store.count_in_outages(self.held_of, self._try_soon)  # type: ignore[attr-defined]  # it is on a server

    def reset(self) -> None:
        """Start afresh in a forked child."""
        # By the ids of decisions, what renews the leases that hold or wait, since when, and on which event loop.
        self._held: dict[int, tuple[list[Settlement], float, asyncio.AbstractEventLoop | None]] = {}
        # What ends those that have ended, as far as the store may not know it, and when they end by themselves.
        self._ended: dict[int, tuple[list[Settlement], float]] = {}
        # By event loop, the task that gives back what is released there until it begins, and that.
        self._returning: dict[Any, tuple[asyncio.Task[None], dict[int, list[Settlement]]]] = {}
        # Whether anything was held since the last run; whether that failed, or an outage has begun since.
        self._is_used = self._is_failing = False
        # Whether a renewal is under way, which brings back what ends meanwhile; whether there is a connection for that.
        self._is_renewing = self._has_sent = False
        super().reset()

    def hold(self, decision: Decision, actual: float = HOLDS) -> None:
        """Renew the leases of a decision from now on, as those of a caller that holds, or that waits for a place."""
        leases = leases_in(decision, actual)
        if leases:
            self._held[decision.id] = leases, monotonic_us(), _get_running_loop()
            self._is_used = True
        elif not self._is_used:
            return
        if not self.is_running:
            self.start()
        elif decision.degraded:  # what is held is put into the store as soon as it is back
            self._try_soon()

    def join(self, decision: Decision, parts: Sequence[Decision]) -> None:
        """Hold as the places of one decision what its parts hold."""
        self.hold(decision)  # first, or an outage that begins meanwhile would not count them
        for identity in {part.id for part in parts} - {decision.id}:
            self._held.pop(identity, None)

    def release(self, decision: Decision) -> None:
        """Give the places of a decision back, once; on a server, in the next batch, and nobody waits for that."""
        ends = [] if self._owner() is None else self.ends_of(decision.id)  # a store that is gone needs nothing back
        if self.in_process or not ends:
            run_in_place(settle_all(cast("Store", self._owner()), ends))
        elif (loop := _get_running_loop()) is not None:
            returning, ended = self._returning.get(loop, (None, {}))
            if returning is None or returning.done():  # else it has yet to begin, and takes this along; none is eager
                returning, ended = keep(self._owner(), asyncio.Task(self._return_from(loop), loop=loop)), {}
                returning.add_done_callback(self._try_soon)
                self._returning[loop] = returning, ended
            ended[decision.id] = ends
        else:
            asyncio.run_coroutine_threadsafe(self._return({decision.id: ends}), background_loop.loop())

    async def give_back(self, decision: Decision) -> None:
        """The same for who waits until they are back, or until the store does not answer."""
        await self._return({decision.id: self.ends_of(decision.id)})

    async def undo(self, decision: Decision) -> None:
        """Give all of a decision back that nobody has used: its places, and the units of its other charges."""
        await self.give_back(decision)
        with suppress(StoreError):
            await settle_all(cast("Store", self._owner()), undoing(decision), is_unused=True)

    def ends_of(self, identity: int) -> list[Settlement]:
        """What gives back the places of a decision that are held, or waited for, and are not renewed any longer."""
        ends, *_ = self._held.pop(identity, ([], 0.0, None))
        for each in ends:
            each.actual = ENDS  # in a renewal that is not sent yet, too
        if ends and (self._is_renewing or not self.in_process):  # else nothing can fail
            self._ended[identity] = ends, monotonic_us() + LEASE_US
        return ends

    async def _return_from(self, loop: asyncio.AbstractEventLoop) -> None:
        """Give back what is released in one iteration of an event loop."""
        await self._return(self._returning.pop(loop)[1])

    async def _return(self, ended: Mapping[int, list[Settlement]]) -> None:
        """Give places back to the store; what it does not answer to is sent again until its lease has ended."""
        try:
            await self._settle([each for ends in ended.values() for each in ends])
        except StoreError:
            self._try_soon()
            return
        # Not what a renewal may bring back, which is sent again; nor that of a decision which is given back twice
        for identity in [each for each, ends in ended.items() if ends and not self._is_renewing]:
            self._ended.pop(identity, None)

    async def _settle(self, settlements: Sequence[Settlement]) -> None:
        for at in range(0, len(settlements), TOGETHER):
            await settle_all(cast("Store", self._owner()), settlements[at : at + TOGETHER])

    def _try_soon(self, returning: asyncio.Future[None] | None = None) -> None:
        """Run now, and then again and again until the store answers, unless that has begun.

        After ``returning``, only if that was cancelled: its event loop has ended.
        """
        if self.is_running and not self._is_failing and (returning is None or returning.cancelled()):
            self._is_failing = True
            background_loop.loop().call_soon_threadsafe(self._begin)

    def held_of(self, is_asked: Callable[[str], bool]) -> list[Settlement]:
        """The renewals of what is held of the buckets for which ``is_asked`` is true."""
        return [each for each in self._renewals() if is_asked(each.charge.bucket) and each.actual == HOLDS]

    def first_waiting(self, bucket: str) -> float:
        """The first lease of a bucket that waits here; infinity if there is none."""
        waiting = [each for each in self._renewals() if each.charge.bucket == bucket and each.actual == WAITS]
        return min([each.booked.place for each in waiting], default=math.inf)

    def held_by_name(self) -> Counter[str]:
        """How many places this process holds of each limit, by its name."""
        return Counter([each.charge.name or DEFAULT_NAME for each in self._renewals() if each.actual == HOLDS])

    def _renewals(self, until_us: float = math.inf) -> list[Settlement]:
        """The renewals of all that is held, or waits, since a time or before."""
        return [each for leases, at_us, _ in list(self._held.values()) if at_us <= until_us for each in leases]

    async def run(self) -> float:
        """Renew all leases, and give back what the store did not take back; end after a while without any."""
        now_us, self._is_renewing = monotonic_us(), True
        for identity, (*_, loop) in self._held.copy().items():  # other threads change it
            if loop is not None and loop.is_closed():  # whoever held it there can never go on
                self.ends_of(identity)
        renewed = self._renewals(math.inf if self._is_failing else now_us - YOUNG_US)
        for identity in [identity for identity, (_, until_us) in self._ended.copy().items() if until_us <= now_us]:
            self._ended.pop(identity, None)
        is_used, self._is_used, self._is_failing = self._is_used or bool(self._held or self._ended), False, False
        self._has_sent = self._has_sent or bool(renewed or self._ended)
        is_answered = False
        with suppress(StoreError):
            await self._settle(renewed)
            is_answered = True
        ended = {identity: ends for identity, (ends, _) in self._ended.copy().items()}
        self._is_renewing = False  # only now: another thread may forget what has ended from here on
        is_failing, self._is_failing = self._is_failing or not is_answered, True  # no other run begins meanwhile
        await self._return(ended)
        self._is_failing = is_failing or not self._ended.keys().isdisjoint(ended)
        return TRIED_EVERY if self._is_failing else RENEWED_EVERY if is_used else math.inf

    async def end(self) -> None:
        """Return when the connection of the background loop is closed, too."""
        self.is_running = self.is_running or self._has_sent
        await super().end()

    async def close(self) -> None:
        """Close the connection of the background loop; begin again if something is held, since the last run ended."""
        leave = getattr(self._owner(), "leave", None)
        if self._has_sent and leave is not None:
            await leave()
            self._has_sent = False
        if self._held or self._ended:
            self.start()


# The leases of this process on a store.
leases_of: ByStore[Leases] = ByStore(Leases)


def end_leases(store: Store, decision: Decision) -> None:
    """Renew the leases of a decision no longer, which is given back."""
    leases = leases_of.get(store)
    if leases is not None:
        leases.ends_of(decision.id)


def held_by_name(store: Store | None) -> Counter[str]:
    """How many places this process holds on a store, by the name of the limit; none, if the store is gone."""
    leases = leases_of.get(store) if store is not None else None
    return Counter() if leases is None else leases.held_by_name()


class PlaceWaiter(SlotWaiter):
    """Waits for places of one store, in the order of all callers of all processes, and then for slots.

    A caller that waits has a lease behind those that hold. The first caller of a bucket in this process looks where its
    own stands, at once when a place of this process comes back, and else some twenty times a second.
    """

    def wait_for_all(self, take: Take) -> Flow[Decision]:
        """Take all charges at once, or else wait for one place after the other, and then for a slot of the rates.

        What is waited for is held by this process when it returns. Raises ``PaceTimeout`` if that takes longer than the
        take's ``max_wait``, at once if the rates say so; nothing is taken then.
        """
        deadline_us, leases = self.now_us() + take.max_wait_us, leases_of(self.store)
        decision = yield from self.try_take(replace(take, max_wait=0.0))
        if decision.allowed:
            leases.hold(decision)
            return decision
        places = [charge for charge in take.charges if type(charge.quota) is InFlight]
        rates = tuple([charge for charge in take.charges if type(charge.quota) is not InFlight])
        foreseen = [state.retry_after for state in decision.states if type(state.quota) is not InFlight]
        too_long = max(foreseen if take.max_wait else [decision.retry_after], default=0.0) - take.max_wait
        if is_outage(decision) or too_long > 0.0:
            raise too_late(take, decision, too_long * SECOND_US)
        parts: list[Decision] = []
        try:
            for charge in places:
                place = yield from self.wait_for_place(replace(take, charges=(charge,)), deadline_us)
                parts.append(place)
            if rates:
                parts.append((yield from self.wait(replace(take, charges=rates), deadline_us=deadline_us)))
        except BaseException as error:
            for part in parts:
                if isinstance(error, GeneratorExit):
                    leases.release(part)
                else:
                    yield GiveBack(self.store, partial(leases.undo, part))
            raise
        # At the slot of the last one; one that an outage lets pass has no id
        now_us, identity = parts[-1].now_us + parts[-1].wait_us, max([each.id for each in parts])
        decision = joined(take, parts[::-1], now_us=now_us, wait_us=0.0, id=identity)
        leases.join(decision, parts)
        return decision

    def wait_for_place(self, take: Take, deadline_us: float) -> Flow[Decision]:
        """Wait for a place, the one charge of a take, until a deadline; it is then held by this process.

        Raises ``PaceTimeout`` when the deadline is over.
        """
        leases, turn, wake_up, is_new = leases_of(self.store), None, WakeUp(self.clock), True
        bucket, quota = take.charges[0].bucket, cast("InFlight", take.charges[0].quota)
        decision, state = yield from self._queued(take)
        try:
            while not _has_place(decision, state):
                if turn is None:
                    key, first = ("place", bucket), -min(_lease_of(decision), decision.now_us)
                    turn = yield from self._turns.wait_and_enter(key, self.clock, deadline_us, first)
                    self.units.add(wake_up, (bucket,))
                if not is_new and self.now_us() < deadline_us:
                    self.units.wake_at(wake_up, min(self.now_us() + LOOK_US * (0.3 + 0.5 * random()), deadline_us))
                    yield wake_up
                if turn is None or is_outage(decision) or self.now_us() >= deadline_us:
                    raise too_late(take, replace(decision, take=replace(decision.take, max_wait=0.0)), quota.retry_us)
                wake_up.set(math.inf)
                decision, state = yield from self._look(take, decision)
                is_new = False
                # The answer of one came later than this one's; in an outage, none here is known by its lease
                if not decision.degraded and leases.first_waiting(bucket) < _lease_of(decision):
                    self._turns.leave(turn)
                    turn = None
        except BaseException as error:
            if isinstance(error, GeneratorExit):  # nobody renews the lease of a caller that is gone
                leases.release(decision)
            else:
                yield GiveBack(self.store, partial(leases.undo, decision))
            raise
        finally:
            self.units.discard(wake_up, (bucket,))
            if turn is not None:
                self._turns.leave(turn)
        decision = replace(decision, wait_us=0.0)
        leases.hold(decision)
        return decision

    def _queued(self, take: Take) -> Flow[tuple[Decision, State]]:
        """A new lease, at the end of the queue; none, if that is full, or if the store is out and refuses."""
        decision = yield from self.try_take(take)
        leases_of(self.store).hold(decision, WAITS)
        return decision, decision.stored[0]

    def _look(self, take: Take, decision: Decision) -> Flow[tuple[Decision, State]]:
        """Where a lease stands now; a new one if the store does not have it, as after an outage."""
        for each in leases_in(decision, WAITS):
            with suppress(StoreError):
                (settled,) = yield CallStore(self.store, self.store.settle((each,)))
                if each.booked.place in [lease for lease, _ in settled.state.leases]:
                    return decision, settled.state
        yield GiveBack(self.store, partial(leases_of(self.store).undo, decision))
        return (yield from self._queued(take))


def _lease_of(decision: Decision) -> float:
    """The lease of a decision on one place; without one, it is behind all others."""
    return min([each.booked.place for each in leases_in(decision, WAITS)], default=math.inf)


def _has_place(decision: Decision, state: State) -> bool:
    """Whether the lease of a decision on one place holds it, by the state of its bucket; without id, none is needed."""
    if not (decision.allowed and decision.id):
        return decision.allowed
    (quota,), (stored,) = [charge.quota for charge in decision.take.charges], decision.stored
    return has_place(cast("InFlight", quota), cast("InFlightState", state), place_of(quota, stored))
