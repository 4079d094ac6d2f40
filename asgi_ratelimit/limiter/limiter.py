"""Limiters: quotas, a store, and the methods that a program calls, with and without ``async``."""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from ..background import background_loop, run_in_place, see_all_through
from ..buckets import DEFAULT_NAME
from ..clock import monotonic_us
from ..counts import counts_of
from ..decision import Charge, Decision, Take, max_wait_of
from ..errors import ConfigurationError, StoreError, checked_name, must_await, shows_use
from ..hooks import Event, Hook, Hooks
from ..leases import PlaceWaiter
from ..overrides import OFF, ReadQuotas, counted, exempt
from ..quota_text import QuotaLike, as_quotas, as_text
from ..quotas import SECOND_US, Quota, has_places
from ..stores import Decisions, Store, as_store, reset, settle, settle_all
from ..stores.base import SETTLED, register
from ..waiting.drivers import CallStore, Flow, run_async, run_sync
from ..waiting.waiter import PaceTimeout
from .live_quotas import Cost, Key, LiveQuotas, charged_units, checked_decision, need_one_key
from .spending import Holding, Spending, SpendWaiter, Wait, units_ahead
from .tickets import REDEEMABLE_FOR, Ticket

P = ParamSpec("P")
T = TypeVar("T")


class Limiter:
    """Limits or paces calls by quotas, whose buckets are in a store under the limiter's name.

    ``quota`` is a text, a quota, or several of them. ``store`` is a store or its URL, by default this process's memory.
    Limiters with the same name, quota and store share their buckets. ``hooks`` are called with every decision.
    Raises ``QuotaError`` and ``ConfigurationError``, the latter also if another limit has other quotas under the same
    name and store: a limiter owns its name for as long as the program refers to it.
    """

    @shows_use('Limiter("10/s burst 20", store="redis://localhost", name="api")')
    def __init__(
        self,
        quota: QuotaLike,
        *,
        store: Store | str | None = None,
        name: str = DEFAULT_NAME,
        hooks: Iterable[Hook] = (),
    ) -> None:
        quotas = self._read(quota)
        self.name = checked_name(name)
        self.store = as_store(store)
        self.hooks = Hooks(hooks)
        self.hooks.watch(self.store)
        self._counts = counts_of(self.store)
        self._own_name(quotas)
        self._begin(quotas)

    _read: ReadQuotas = staticmethod(as_quotas)
    """Makes quotas of its argument, and of an override."""

    def _own_name(self, quotas: Iterable[Quota]) -> None:
        register(self.store, self, [(self.name, quota) for quota in quotas])

    def _begin(self, quotas: tuple[Quota, ...]) -> None:
        """Make what belongs to its name."""
        self.live = LiveQuotas(self.store, self.name, quotas, self._read)
        self._waiter = SpendWaiter(self.store, renewed=self.live.renewed)
        self._places = PlaceWaiter(self.store, renewed=self.live.renewed)

    @property
    def quotas(self) -> tuple[Quota, ...]:
        """The quotas that apply now: its own, or those of an override."""
        return self.live.quotas

    def __repr__(self) -> str:
        return f"Limiter({self.quotas!r}, store={self.store!r}, name={self.name!r})"

    @must_await
    async def rate_limit(
        self, key: Key, cost: Cost = 1, *, best_effort: bool = False, operation: str | None = None
    ) -> Decision:
        """Take ``cost`` units of every quota now, or nothing if one of them has too few.

        ``cost`` may name the quotas, as in ``{"requests": 1, "tokens": 1800}``: then only these are charged. With
        ``best_effort``, as many whole units are ``granted`` as all quotas can give, at least 1. With an ``operation``,
        an id of yours such as that of a message, the same key and cost are charged once, whichever process repeats the
        call and however often; the decision is then that of the first call. A call that was refused, or given back,
        does not count as the first.
        """
        take = Take(_rates(self.charges(key, cost)), 0.0, best_effort, None, operation)
        return await self._decide(take, self.live.word)

    @must_await
    async def pace(
        self, key: Key, cost: Cost = 1, *, max_delay: float | None = None, operation: str | None = None
    ) -> Decision:
        """Book the earliest slot at which ``cost`` units conform; the caller sleeps for ``delay`` seconds.

        If the slot is more than ``max_delay`` seconds away (``None``: no limit), nothing is booked, and the decision is
        not ``allowed``. Raises ``ConfigurationError`` for several keys, unless ``max_delay`` is 0: a slot booked far
        ahead for one of them would keep the others, which are shared, from everybody until then.
        """
        take = self._paced(key, cost, max_delay, operation)
        need_one_key(take, "await limiter.acquire(key), which waits, or limiter.reserve(key)")
        return await self._decide(take, self.live.word)

    async def acquire(
        self, key: Key, cost: Cost = 1, *, max_delay: float | None = None, operation: str | None = None
    ) -> Decision:
        """Book the earliest slot at which ``cost`` units conform, and return when it has come.

        It sleeps once. A caller that is cancelled while it books or sleeps gives the slot back, and the callers behind
        it move up; the decision is that of the slot that the caller uses. A slot under an ``operation`` stays booked:
        the next caller of the operation gets it. Raises ``PaceTimeout`` at once, and books nothing, if the slot is more
        than ``max_delay`` seconds away.
        """
        return await run_async(self.admitted(self._paced(key, cost, max_delay, operation), self._waiter.wait))

    async def peek(self, key: Key, cost: Cost = 1) -> Decision:
        """The decision that ``rate_limit`` would return now; nothing is taken. May raise ``StoreError``."""
        take = Take(self.charges(key, cost))
        if self.live.word == OFF:
            return exempt(take, self.store)
        decision = await self.store.peek(take)
        return decision if self.live.word is None else counted(decision)

    async def refund(self, decision: Decision, cost: Cost | None = None) -> None:
        """Give back ``cost`` units of each charge of a decision, or all of them.

        Units that have drained, or have left their window, are already available again, and are not given back. A
        decision is settled once: a second refund, or a settlement after it, does nothing. During an outage of the
        store, the refund waits until the store is back. Raises ``ValueError`` for more units than were charged, and for
        anything but a decision.
        """
        charged = charged_units(checked_decision(decision, "refund(await limiter.rate_limit(key))"))
        refunded = charged
        if cost is not None:
            refunded = self.live.settled_units(decision, cost, [0.0] * len(charged), "refund(decision, 3)")
        if any(units > most for units, most in zip(refunded, charged)):
            raise ValueError(f"a refund of {cost!r} is more than was charged, {charged!r}")
        await settle(self.store, decision, [most - units for units, most in zip(refunded, charged)])

    async def settle(self, decision: Decision, actual: Cost) -> None:
        """Correct the charges of a decision to ``actual`` units, the cost that is known only afterwards.

        If that is less than was charged, the rest is refunded. If it is more, the rest is debited: it is charged even
        if it does not fit, and later callers wait for it. Each quota is settled once; during an outage of the store,
        the settlement waits until the store is back. One number is the actual cost for every quota; a mapping names
        quotas, and leaves the others to later calls. Raises ``ValueError`` for anything but a decision, and for one
        number, except 0, where the quotas were charged different costs.
        """
        decision = checked_decision(decision, "settle(decision, 3)")
        await settle(self.store, decision, self.live.actual_units(decision, actual, [None] * len(decision.charges)))

    async def cancel(self, booked: Decision | Ticket | str) -> None:
        """Give back a booked slot: the end of the queue moves up, or the next caller that fits takes the slot.

        Raises ``ValueError`` for anything but a decision, or a ticket or its text.
        """
        if not isinstance(booked, (Ticket, str)):
            await self.refund(checked_decision(booked, "cancel(decision), or cancel(ticket)"))
            return
        booked = Ticket.parse(booked) if isinstance(booked, str) else booked
        booked.charges_under(self.live, self.name)
        try:
            await settle_all(self.store, booked.cancellation(is_marked=True))
        except StoreError:  # this process gives back what it has taken itself, and the rest when the store is back
            await settle_all(self.store, booked.cancellation(is_marked=False))

    async def waiting(self, key: Key) -> float:
        """The units that are booked under a key for a time in the future.

        With several quotas, this is the least number of those that make callers wait.
        """
        return min(units_ahead(await self.peek(key)), default=0.0)

    async def eta(self, key: Key, cost: Cost = 1) -> float:
        """Seconds that a caller of ``acquire`` or ``@pace`` would wait if it came now; ``math.inf`` for never.

        This includes callers of this process and of others that already wait for the same quotas. Nothing is booked.
        May raise ``StoreError``.
        """
        if self.live.word is not None:
            return 0.0
        peeked = await self.store.peek(self._paced(key, cost, None))
        return peeked.delay if peeked.allowed else peeked.retry_after

    async def reserve(self, key: Key, cost: Cost = 1, *, operation: str | None = None) -> Ticket:
        """Book the earliest slot at which ``cost`` units conform, for a job that runs then, here or elsewhere.

        ``str(ticket)`` goes with the job, and ``redeem`` lets it run, once, without competing again. Raises
        ``PaceTimeout`` if there is no slot at all, or if the store is out and its ``on_error`` refuses, and
        ``ValueError`` for keys that are too long for a ticket. An override in words, ``"shadow"`` or ``"off"``, does
        not affect tickets.
        """
        take = self._paced(key, cost, None, operation)
        own = [charge for charge in take.charges if charge.key == take.charges[0].key]
        decision = await self._decide(replace(take, charges=tuple(own)))
        try:
            return Ticket.of(decision, [charge for charge in take.charges if charge not in own])
        except ValueError:
            if not decision.repeated:
                await self.refund(decision)
            raise

    @must_await
    async def redeem(self, ticket: Ticket | str, *, late_tolerance: float = 5.0) -> Decision:
        """The decision of a ticket; its ``delay`` is the time that is left until the slot.

        The first caller gets a decision that is ``allowed``, of which nothing is left to settle. All others get one
        that is not, and that never will be. After a cancellation, so does every caller. The charges of other keys,
        which are shared, are taken now, so the slot may come later: with such keys, sleep until ``ready_at`` before the
        call. A ticket that comes more than ``late_tolerance`` seconds after its slot, because workers were down, has
        missed it: it books a new slot behind all others. Raises ``ValueError`` for anything but a ticket of this
        limiter, for one whose slot was over a week ago, and for a tolerance that is not a number of seconds. May raise
        ``StoreError``, in which case the ticket may have been redeemed.
        """
        if not isinstance(late_tolerance, (int, float)) or not late_tolerance >= 0:  # true for NaN, too
            raise ValueError(f"late_tolerance must be seconds from 0 up, not {late_tolerance!r}: late_tolerance=5")
        ticket = ticket if isinstance(ticket, Ticket) else Ticket.parse(ticket)
        charges, own = ticket.charges_under(self.live, self.name), len(ticket.booked)
        settled = await self.store.settle(ticket.claims())
        decision = ticket.decision(settled)
        late = decision.now_us / SECOND_US - ticket.ready_at
        if late >= REDEEMABLE_FOR:
            raise ValueError(f"the slot of this ticket was {late:.0f} s ago: tickets are good for a week after that")
        if not settled[0].is_first:
            return replace(decision, allowed=False, wait_us=math.inf, id=0, degraded=False)
        if late > late_tolerance:
            decision = await self._decide(Take(charges[:own], math.inf))
        if not decision or len(charges) == own:
            return decision
        shared = await self._decide(Take(charges[own:], math.inf))
        if not shared:
            return shared
        wait_us, degraded = max(decision.wait_us, shared.wait_us), decision.degraded or shared.degraded
        return replace(decision, wait_us=wait_us, degraded=degraded, id=decision.id | SETTLED)

    def spend(self, key: Key, costs: Cost, *, max_delay: float | None = None, operation: str | None = None) -> Spending:
        """Wait until the estimated ``costs`` conform, and settle the actual ones: ``async with ... as spent``.

        All costs are taken together, once they fit. They are not booked ahead, so units that others give back are used
        at once; only a caller from whom others take the units for half a minute books its slot. Callers of one process
        are served in the order in which they come. ``spent.settle(tokens=1234)`` sets the actual cost so far. The last
        one that was set is settled at the end of the block, however it ends; a cost that was never set stays as
        estimated. Entering the block raises ``PaceTimeout`` if the costs cannot be taken within ``max_delay`` seconds.
        """
        return Spending(self._paced(key, costs, max_delay, operation), self._waiter, self.admitted, live=self.live)

    def hold(self, key: Key, cost: Cost = 1, *, max_delay: float | None = None) -> Holding:
        """Hold a place of each ``InFlight`` quota in a block: ``async with limiter.hold(key): ...``.

        Units of the other quotas are taken with it, or nothing at all. Callers wait in order, first come, first served,
        in all processes; entering the block raises ``PaceTimeout`` if that would take longer than ``max_delay`` seconds
        (``None``: no limit), and with 0 at once. The places are free again when the block ends, however it ends.
        """
        take = Take(self.charges(key, cost), max_wait_of(max_delay))
        return Holding(take, self._places, self.admitted, hooks=self.hooks)

    async def reset(self, key: Key) -> None:
        """Make the buckets of ``key`` as if they had never been used, also those that an override replaces.

        May raise ``StoreError``.
        """
        await reset(self.store, [*self.charges(key), *self.live.charges(key, 1, self.live.own)])

    async def take(self, charges: Iterable[Charge], max_wait: float = 0.0) -> Decision:
        """Take charges of any quotas and keys, all or nothing; a slot is booked at most ``max_wait`` seconds ahead.

        An override in words applies if all charges have the limiter's name; an override of quotas changes no charge.
        Raises ``ValueError`` for anything but charges.
        """
        listed = list(charges) if isinstance(charges, Iterable) else [charges]
        if not all(isinstance(each, Charge) for each in listed):
            raise ValueError(f'take is called with charges, not {charges!r}: take([Charge(TokenBucket(10), "key", 1)])')
        named = _rates([replace(charge, name=charge.name or self.name) for charge in listed])
        take = Take(tuple(named), max_wait)
        need_one_key(take, "take them without max_wait, or await limiter.acquire(key)")
        return await self._decide(take, self.live.word if all(each.name == self.name for each in named) else None)

    async def aclose(self) -> None:
        """Close the store, after the background calls of hooks are done, and unused slots are given back.

        That includes a store that was passed in and that others use. The next take of any of them opens it again.
        """
        await self.hooks.aclose()
        await see_all_through(self.store)
        await self.store.aclose()

    async def __aenter__(self) -> Limiter:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def admitted(self, take: Take, wait: Wait) -> Flow[Decision]:
        """The decision of a caller that waits until ``wait`` ends; an override in words lets it pass at once.

        It is counted, and passed to hooks.
        """
        if self.live.word is not None:
            return (yield CallStore(self.store, self._decide(take, self.live.word)))  # type: ignore[no-any-return]
        decision, since_us = None, monotonic_us()
        self.hooks.queued(self.name, 1)
        try:
            decision = yield from wait(take)
        except PaceTimeout as error:
            decision = error.decision
            raise
        finally:
            self.hooks.queued(self.name, -1)
            if decision is not None:
                self._counts.count((decision,))
                if self.hooks:
                    self.hooks(Event(self.name, decision, waited=(monotonic_us() - since_us) / SECOND_US))
        return decision

    async def _decide(self, take: Take, word: str | None = None) -> Decision:
        """The decision of the store, which is counted and passed to hooks; a ``word`` of an override lets it pass."""
        if word == OFF:
            return exempt(take, self.store)
        if word is not None:
            take = replace(take, max_wait=0.0)
        since_us = monotonic_us()
        answer = self.store.take((take,))
        decision = (answer if type(answer) is Decisions else await answer)[0]
        if word is not None:
            decision = replace(decision, shadow=True)
        self._counts.count((decision,))
        if self.hooks:
            self.hooks(Event(self.name, decision, (monotonic_us() - since_us) / SECOND_US))
        return decision if word is None else counted(decision)

    def _paced(self, key: Key, cost: Cost, max_delay: float | None, operation: str | None = None) -> Take:
        return Take(_rates(self.charges(key, cost)), max_wait_of(max_delay), operation=operation)

    def charges(self, key: Key, cost: Cost = 1) -> tuple[Charge, ...]:
        """The charges of a request with this key and cost.

        Both may name the quotas, as in ``key={"guild": guild, "all": ""}``; only quotas that a cost names are charged.
        """
        return self.live.charges(key, cost)


def _rates(charges: Sequence[Charge]) -> tuple[Charge, ...]:
    """These charges; ``ConfigurationError`` if one is for a place, which would not be given back."""
    if has_places([charge.quota for charge in charges]):
        text = as_text([charge.quota for charge in charges])
        hold = 'async with limiter.hold("key"): ...'
        raise ConfigurationError(f'"{text}" needs a block, at whose end the place is free again: {hold}')
    return tuple(charges)


# Without async


def _blocking(
    method: Callable[Concatenate[Limiter, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[SyncLimiter, P], T]:
    """A method of ``Limiter`` without ``async``."""

    @wraps(method, updated=())  # not its mark of a coroutine function
    def blocking(self: SyncLimiter, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._run(method(self._limiter, *args, **kwargs))

    return blocking  # type: ignore[return-value]  # a function is bound to its instance


class SyncLimiter:
    """``Limiter`` for code without ``async``: the same methods, which block their thread if the store is remote.

    ``acquire`` and the block of ``spend`` also block it until their slot has come, and ``close`` stands for ``aclose``.
    All threads of a process share one event loop in the background, and so the store's connections.
    """

    @shows_use('SyncLimiter("10/s burst 20", store="redis://localhost", name="api")')
    def __init__(
        self,
        quota: QuotaLike,
        *,
        store: Store | str | None = None,
        name: str = DEFAULT_NAME,
        hooks: Iterable[Hook] = (),
    ) -> None:
        self._limiter = Limiter(quota, store=store, name=name, hooks=hooks)
        self._run = run_in_place if self._limiter.store.in_process else background_loop.run

    def __repr__(self) -> str:
        return f"Sync{self._limiter!r}"

    rate_limit = _blocking(Limiter.rate_limit)
    pace = _blocking(Limiter.pace)
    peek = _blocking(Limiter.peek)
    refund = _blocking(Limiter.refund)
    settle = _blocking(Limiter.settle)
    cancel = _blocking(Limiter.cancel)
    waiting = _blocking(Limiter.waiting)
    eta = _blocking(Limiter.eta)
    reserve = _blocking(Limiter.reserve)
    redeem = _blocking(Limiter.redeem)
    reset = _blocking(Limiter.reset)
    take = _blocking(Limiter.take)

    def acquire(
        self, key: Key, cost: Cost = 1, *, max_delay: float | None = None, operation: str | None = None
    ) -> Decision:
        """See ``Limiter.acquire``: it blocks the thread until its slot has come."""
        take = self._limiter._paced(key, cost, max_delay, operation)
        return run_sync(self._limiter.admitted(take, self._limiter._waiter.wait))

    def spend(self, key: Key, costs: Cost, *, max_delay: float | None = None, operation: str | None = None) -> Spending:
        """See ``Limiter.spend``: ``with ... as spent``."""
        return self._limiter.spend(key, costs, max_delay=max_delay, operation=operation)

    def hold(self, key: Key, cost: Cost = 1, *, max_delay: float | None = None) -> Holding:
        """See ``Limiter.hold``: ``with limiter.hold(key): ...``."""
        return self._limiter.hold(key, cost, max_delay=max_delay)

    def close(self) -> None:
        """Close the store; ``with SyncLimiter(...) as limiter`` does it at the end of the block.

        That includes a store that was passed in and that others use. The next take of any of them opens it again.
        """
        run = background_loop.run if self._limiter.hooks else self._run
        run(self._limiter.aclose())

    def __enter__(self) -> SyncLimiter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
