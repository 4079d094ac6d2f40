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
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from random import random
from typing import TypeAlias, cast
from weakref import ref

from .algorithms import Booked, InFlightState, State, place_of
from .algorithms.in_flight import HOLDS, LOOK_US, WAITS
from .background import Repeating, background_loop, keep, run_in_place
from .buckets import DEFAULT_NAME
from .clock import monotonic_us
from .decision import Charge, Decision, Settlement, Take, is_outage, undoing
from .errors import StoreError
from .quotas import LEASE_US, SECOND_US, InFlight
from .stores import ByStore, Store, settle_all
from .waiting.drivers import INTERRUPTED, CallStore, Flow, GiveBack, WakeUp
from .waiting.waiter import SlotWaiter, too_late

RENEWED_EVERY = 10.0
"""Seconds between two renewals of a lease: two of three may fail."""

TRIED_EVERY = 1.0
"""Seconds between two renewals while the store does not answer."""

Lease: TypeAlias = tuple[str, float]
"""A bucket, and the id of a lease there."""


def leases_in(decision: Decision) -> dict[Lease, Charge]:
    """The leases that a decision has taken, and their charges."""
    if not (decision.allowed and decision.id):
        return {}
    return {
        (charge.bucket, place_of(charge.quota, state)): charge
        for charge, state in zip(decision.take.charges, decision.stored)
        if type(charge.quota) is InFlight and charge.cost
    }


def _renewal(lease: Lease, charge: Charge, units: float) -> Settlement:
    """As it may be sent any number of times, the store remembers none of it."""
    return Settlement(charge, Booked(0.0, lease[1], lease[1], 1.0), 1.0 + units, 0)


def _return(lease: Lease, charge: Charge) -> Settlement:
    return Settlement(charge, Booked(0.0, lease[1], lease[1], 1.0), 0.0, 0)


class Leases(Repeating):
    """The leases of this process on one store. Thread-safe; a forked child has none of its parent's."""

    def __init__(self, store: Store) -> None:
        self._in_process = store.in_process
        super().__init__(ref(store), self._go_on)
        self._is_attached = hasattr(store, "attach")
        if hasattr(store, "attach"):
            store.attach(self)
            store.count_in_outages(self.held_of)  # type: ignore[attr-defined]  # it is on a server

    def reset(self) -> None:
        """Start afresh in a forked child."""
        # The charges of what is held or waits, and the units of their renewals; until when what has ended may hold.
        self._held: dict[Lease, tuple[Charge, float]] = {}
        self._ended: dict[Lease, tuple[Charge, float]] = {}
        self._is_used = False
        super().reset()

    def hold(self, decision: Decision, units: float = HOLDS) -> None:
        """Renew the leases of a decision from now on; those of a caller that waits for a place have other ``units``."""
        for lease, charge in leases_in(decision).items():
            self._held[lease] = charge, units
            self._is_used = True
        if self._is_used and not self.is_running:
            self.start()

    def release(self, decision: Decision) -> None:
        """Give the places of a decision back, once; on a server, in the next batch, and nobody waits for that."""
        if not any(lease in self._held for lease in leases_in(decision)):
            return
        if self._in_process:
            run_in_place(self.give_back(decision))
        elif (loop := _get_running_loop()) is not None:
            keep(self._owner(), loop.create_task(self.give_back(decision)))
        else:
            asyncio.run_coroutine_threadsafe(self.give_back(decision), background_loop.loop())

    async def give_back(self, decision: Decision, *, is_undone: bool = False) -> None:
        """The same for who waits for it, or the whole decision, if ``is_undone``: it was not used.

        What the store does not answer to is sent again until its lease has ended.
        """
        ended = {lease: charge for lease, charge in leases_in(decision).items() if self._held.pop(lease, None)}
        for lease, charge in ended.items():
            self._ended[lease] = charge, monotonic_us() + LEASE_US
        settlements = [_return(lease, charge) for lease, charge in ended.items()]
        if is_undone:
            settlements += [each for each in undoing(decision) if (each.charge.bucket, each.booked.place) not in ended]
        store = self._owner()
        with suppress(StoreError):
            await settle_all(store, settlements, is_unused=is_undone)
            for lease in ended:
                self._ended.pop(lease, None)

    def held_of(self, bucket: str) -> list[Settlement]:
        """The renewals of what is held of a bucket."""
        held = list(self._held.items())
        return [_renewal(lease, *each) for lease, each in held if lease[0] == bucket and each[1] == HOLDS]

    def held_by_name(self) -> Counter[str]:
        """How many places this process holds of each limit, by its name."""
        return Counter([charge.name or DEFAULT_NAME for charge, units in list(self._held.values()) if units == HOLDS])

    async def run(self) -> float:
        """Renew all leases, and give back what has ended meanwhile; end after a while without any."""
        store, renewed, now_us = self._owner(), dict(self._held), monotonic_us()
        for lease, (_, until_us) in list(self._ended.items()):
            if until_us <= now_us:
                self._ended.pop(lease, None)
        ended = dict(self._ended)
        settlements = [_renewal(lease, *each) for lease, each in renewed.items()]
        settlements += [_return(lease, charge) for lease, (charge, _) in ended.items()]
        is_used, self._is_used = self._is_used or bool(settlements), False
        try:
            await settle_all(store, settlements)
        except StoreError:
            return TRIED_EVERY
        for lease in ended:
            self._ended.pop(lease, None)
        late = {lease: each for lease, each in renewed.items() if lease not in self._held}
        for lease, (charge, _) in late.items():  # it was given back while its renewal was under way
            self._ended[lease] = charge, monotonic_us() + LEASE_US
        return 0.0 if late else RENEWED_EVERY if is_used else math.inf

    async def _go_on(self) -> None:
        """Begin again if something is held, which may have been while the last run came to its end."""
        if self._held or self._ended:
            self.start()

    async def _end(self) -> None:
        await super()._end()
        leave = getattr(self._owner(), "leave", None)
        if leave is not None:
            await leave()


_leases: ByStore[Leases] = ByStore()


def leases_of(store: Store) -> Leases:
    """The leases of this process on a store, the same for everyone who uses that object."""
    return _leases.get(store) or _leases.made(store, Leases)


def held_by_name(store: Store) -> Counter[str]:
    """How many places this process holds on a store, by the name of the limit."""
    leases = _leases.get(store)
    return Counter() if leases is None else leases.held_by_name()


class PlaceWaiter(SlotWaiter):
    """Waits for places of one store, in the order of all callers of all processes, and then for slots.

    A caller that waits has a lease behind those that hold. The first caller of a bucket in this process looks where its
    own stands, at once when a place of this process comes back, and else a few times a second.
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
        except INTERRUPTED:
            for part in parts:
                yield GiveBack(self.store, partial(leases.give_back, part, is_undone=True))
            raise
        return _joined(take, parts)

    def wait_for_place(self, take: Take, deadline_us: float) -> Flow[Decision]:
        """Wait for a place, the one charge of a take, until a deadline; it is then held by this process.

        Raises ``PaceTimeout`` when the deadline is over.
        """
        leases, turn, wake_up = leases_of(self.store), None, WakeUp(self.clock)
        bucket, quota = take.charges[0].bucket, cast("InFlight", take.charges[0].quota)
        decision, state = yield from self._queued(take)
        try:
            while not has_place(decision, state):
                if turn is None:
                    turn = yield from self._turns.wait_and_enter(("place", bucket), self.clock, deadline_us)
                    self.units.add(wake_up, (bucket,))
                elif self.now_us() < deadline_us:
                    with self.units.lock:
                        if wake_up.at_us == math.inf:  # no place has come back since it looked
                            wake_up.set(min(self.now_us() + LOOK_US * (1.0 + 1.5 * random()), deadline_us))
                    yield wake_up
                if turn is None or is_outage(decision) or self.now_us() >= deadline_us:
                    refused = replace(decision.take, max_wait=0.0)
                    raise too_late(take, replace(decision, take=refused), quota.retry_us)
                wake_up.set(math.inf)
                decision, state = yield from self._look(take, decision)
        except INTERRUPTED:
            yield GiveBack(self.store, partial(leases.give_back, decision, is_undone=True))
            raise
        finally:
            self.units.discard(wake_up, (bucket,))
            if turn is not None:
                self._turns.leave(turn)
        leases.hold(decision)
        return decision

    def _queued(self, take: Take) -> Flow[tuple[Decision, State]]:
        """A new lease, at the end of the queue; none, if that is full, or if the store is out and refuses."""
        decision = yield from self.try_take(take)
        leases_of(self.store).hold(decision, WAITS)
        return decision, decision.stored[0]

    def _look(self, take: Take, decision: Decision) -> Flow[tuple[Decision, State]]:
        """Where a lease stands now; a new one if the store does not have it, as after an outage."""
        for lease, charge in leases_in(decision).items() if not decision.degraded else ():
            with suppress(StoreError):
                (settled,) = yield CallStore(self.store, self.store.settle((_renewal(lease, charge, WAITS),)))
                if any(each == lease[1] for each, _ in settled.state.leases):
                    return decision, settled.state
        yield GiveBack(self.store, partial(leases_of(self.store).give_back, decision, is_undone=True))
        return (yield from self._queued(take))


def has_place(decision: Decision, state: State) -> bool:
    """Whether the lease of a decision on one place is among the first in the state of its bucket, which hold."""
    if not decision.allowed or not isinstance(state, InFlightState):
        return decision.allowed
    quota = decision.take.charges[0].quota
    first = state.leases[: int(quota.limit)]
    return not decision.id or place_of(quota, decision.stored[0]) in [lease for lease, _ in first]


def _joined(take: Take, parts: Sequence[Decision]) -> Decision:
    """One decision of the decisions on the parts of a take: its time and its id are those of the last one."""
    stored = {charge.bucket: state for each in parts for charge, state in zip(each.take.charges, each.stored)}
    degraded = any(each.degraded for each in parts)
    return replace(parts[-1], take=take, stored=[stored[each.bucket] for each in take.charges], degraded=degraded)
