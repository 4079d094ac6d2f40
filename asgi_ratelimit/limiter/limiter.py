"""Limiters: quotas, a store, and the verbs that a program calls."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from itertools import repeat
from types import TracebackType

from ..algorithms import waiting
from ..buckets import DEFAULT_NAME
from ..decision import Charge, Decision, Take
from ..hooks import Hook, Hooks
from ..quota_text import QuotaLike, as_quotas
from ..stores import MemoryStore, Store, open_store, settle
from .charges import Cost, Key, charged, charges_of, checked_name, costs_of
from .reservations import Ticket, late_by, on_time
from .spending import Spending


class Limiter:
    """Quotas under a name, in a store: limits calls, or paces them.

    ``quota`` is a text, a quota, or several; ``store`` a store or its URL, and by default this process's memory.
    Limiters of one name, quota and store share their buckets. ``hooks`` are told of every take that is decided.
    Raises ``QuotaError`` and ``ConfigurationError``.
    """

    def __init__(
        self,
        quota: QuotaLike,
        *,
        store: Store | str | None = None,
        name: str = DEFAULT_NAME,
        hooks: Iterable[Hook] = (),
    ) -> None:
        self.quotas = as_quotas(quota)
        self.name = checked_name(name)
        self.store = as_store(store)
        self._hooks = Hooks(hooks)

    def __repr__(self) -> str:
        return f"Limiter({self.quotas!r}, store={self.store!r}, name={self.name!r})"

    async def rate_limit(self, key: Key, cost: Cost = 1, *, best_effort: bool = False) -> Decision:
        """Take ``cost`` units of every quota now, or, if one of them has too little, nothing at all.

        ``cost`` may name the quotas, ``{"requests": 1, "tokens": 1800}``: then only these are charged. With
        ``best_effort`` as many whole units are ``granted`` as all quotas can give, at least 1.
        """
        return await self._take(Take(self.charges(key, cost), best_effort=best_effort))

    async def pace(self, key: Key, cost: Cost = 1, *, max_delay: float | None = None) -> Decision:
        """Book the earliest slot at which ``cost`` units conform; it does not sleep, ``delay`` says how long to.

        Where the slot is more than ``max_delay`` seconds away (``None``: never too far), nothing is booked and the
        decision is not ``allowed``.
        """
        return await self._take(Take(self.charges(key, cost), math.inf if max_delay is None else max_delay))

    async def peek(self, key: Key, cost: Cost = 1) -> Decision:
        """What ``rate_limit`` would answer now, and what is left; nothing is taken. May raise ``StoreError``."""
        return await self.store.peek(Take(self.charges(key, cost)))

    async def refund(self, decision: Decision, cost: Cost | None = None) -> None:
        """Give back ``cost`` units of each charge of a decision, or all of them, to where they were booked.

        What has drained, or left its window, is full again by itself and cannot be given back. A decision is settled
        once: a second refund, or settling after it, does nothing. Where the store is out, it is done when that is
        back. Raises ``ValueError`` for more than was charged.
        """
        most = charged(decision)
        given = most if cost is None else costs_of(decision, cost, [0.0] * len(most))
        if any(units > had for units, had in zip(given, most)):
            raise ValueError(f"a refund of {cost!r} is more than was charged, {most!r}")
        await settle(self.store, decision, [had - units for units, had in zip(given, most)])

    async def settle(self, decision: Decision, actual: Cost) -> None:
        """Make a decision's charges come to ``actual`` units, known only afterwards.

        Less than charged is refunded. More is owed: it is charged although it does not fit, and is paid back before
        anyone else goes. A decision is settled once; where the store is out, when that is back.
        """
        await settle(self.store, decision, costs_of(decision, actual, charged(decision)))

    async def cancel(self, booked: Decision | Ticket) -> None:
        """Give back a slot that was booked: the queue's end moves up, or the next caller that fits takes it."""
        if isinstance(booked, Ticket):
            await self.store.settle(booked.cancellation(self.quotas, self.name))
        else:
            await settle(self.store, booked, [0.0] * len(booked.states))

    async def waiting(self, key: Key) -> float:
        """The units that are booked under a key, and whose time has not come yet.

        Of several quotas, the one that makes the others wait tells; theirs are held until then as if all was booked.
        """
        looked = await self.peek(key)
        if looked.take is None or looked.before is None:
            return 0.0
        times = looked.times_us or repeat(looked.now_us)
        booked = zip(looked.take.charges, looked.before, times)
        ahead = [waiting(charge.quota, state, now) for charge, state, now in booked]
        return min([units for units in ahead if units > 0.0], default=0.0)

    async def reserve(self, key: Key, cost: Cost = 1) -> Ticket:
        """Book the earliest slot at which ``cost`` units conform, for a job that is to run then, maybe elsewhere.

        ``str(ticket)`` goes with the job, and ``redeem`` lets it run without competing again. May raise
        ``PaceTimeout`` where there is no slot at all, or nobody to ask for one.
        """
        return Ticket.of(await self.pace(key, cost))

    async def redeem(self, ticket: Ticket | str, *, late_tolerance: float = 5.0) -> Decision:
        """The decision of a ticket, whose ``delay`` is what is left until its slot.

        One that comes more than ``late_tolerance`` seconds after it, because workers were down, has missed it: it
        books anew, behind all others, and the delay is that to its new slot. Raises ``ValueError`` for what is no
        ticket of this limiter, and may raise ``StoreError``.
        """
        ticket = Ticket.parse(ticket) if isinstance(ticket, str) else ticket
        take = Take(ticket.charges(self.quotas, self.name), math.inf)
        looked = await self.store.peek(take)
        if late_by(ticket, looked) > late_tolerance:
            return await self._take(take)
        return on_time(ticket, looked)

    def spend(self, key: Key, costs: Cost, *, max_delay: float | None = None) -> Spending:
        """Wait until ``costs`` conform, and settle what they really were: ``async with ... as spent``.

        All are taken at once, or none. ``spent.settle(tokens=1234)`` says what has been used so far; at the end of the
        block, however it ends, the last that was said is settled, and what nothing was said of stays as estimated.
        Raises ``PaceTimeout`` on entering where that would take longer than ``max_delay`` seconds.
        """
        take = Take(self.charges(key, costs), math.inf if max_delay is None else max_delay)
        return Spending(self.store, take, self._tell)

    async def reset(self, key: Key) -> None:
        """Forget all that ``key`` has used. May raise ``StoreError``."""
        await self.store.reset(self.charges(key, 1))

    async def take(self, charges: Iterable[Charge], max_wait: float = 0.0) -> Decision:
        """Take charges of any quotas and keys, all or nothing, waiting at most ``max_wait`` seconds (``math.inf``)."""
        return await self._take(Take(tuple(self._own(charge) for charge in charges), max_wait))

    async def aclose(self) -> None:
        """Close the store."""
        await self.store.aclose()

    async def __aenter__(self) -> Limiter:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _take(self, take: Take) -> Decision:
        return self._tell((await self.store.take((take,)))[0])

    def _tell(self, decision: Decision) -> Decision:
        """A decision, once the hooks were told of it."""
        if self._hooks:
            self._hooks(self.name, decision)
        return decision

    def charges(self, key: Key, cost: Cost = 1) -> tuple[Charge, ...]:
        """What a request comes to: the charges that every verb with a key and a cost takes.

        A key or a cost may name the quotas, ``{"guild": guild, "all": ""}``; only those that a cost names are charged.
        """
        return charges_of(self.quotas, self.name, key, cost)

    def _own(self, charge: Charge) -> Charge:
        return charge if charge.name else replace(charge, name=self.name)


def as_store(store: Store | str | None) -> Store:
    """The store of a ``store`` argument: a store, a URL, or ``None`` for this process's memory."""
    if store is None:
        return MemoryStore()
    return open_store(store) if isinstance(store, str) else store
