"""Stores keep the states of buckets and decide takes: the protocol, the two kinds, and ``open_store``."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

from ..algorithms import Booking, Outcome
from ..argument_errors import shows_use
from ..decision import Charge, ChargeTemplate, Decision, Redemption, SettledCharge, Settlement, Take
from ..errors import ConfigurationError
from .by_store import ByStore
from .call_observers import Observer
from .memory import MemoryStore
from .operations import settled_as
from .urls import SCHEMES, shown

if TYPE_CHECKING:
    from .redis import RedisStore

__all__ = [
    "Book",
    "ByStore",
    "MemoryStore",
    "RedisStore",
    "Store",
    "Submit",
    "SubmitCharge",
    "apply_settlement",
    "booker",
    "charge_submitter",
    "observe",
    "open_store",
    "operating",
    "reset",
    "settle",
    "submitter",
    "when_units_come_back",
]

Submit: TypeAlias = Callable[[Take], Decision | Awaitable[Decision]]
"""Submits one take: returns the decision, or an awaitable of it if the store has to wait."""

SubmitCharge: TypeAlias = Callable[[ChargeTemplate, str], Outcome | Decision | Awaitable[Outcome | Decision]]
"""Submits a take of one charge without a wait, given its template and its bucket: returns the outcome, or the decision
if the store is out."""

Book: TypeAlias = Callable[[Charge, float], Booking | None]
"""Takes one charge at a slot at most this many microseconds away; ``None`` if ``submit`` has to decide."""


class Store(Protocol):
    """Keeps the states of buckets, and decides takes, each all or nothing.

    It need be neither hashable nor comparable. A store of a class without weak references is kept forever, once a
    caller has waited for it. It needs no more than the members below. These are also used if it has them:

    * ``submit(take)``, which returns the decision of one take, or an awaitable of it, and ``submit_charge(template,
      bucket)``, which returns the outcome of a take of one charge in the same way;
    * ``book(charge, max_wait_us)`` of a store in this process, which takes one charge at a slot without a decision;
    * ``clock``, a ``Clock`` that measures waits, if that is not the machine's;
    * ``place``, a hashable value that is equal for stores that share their buckets;
    * ``observe(observer)``, whose ``store_called`` is then called with a ``StoreCall`` after each call to a server.

    A store with ``remembers_operations = True`` charges takes with the same operation and charges once, and answers all
    of them alike, except that ``repeated_us`` of all but the first one is its time in microseconds. It has
    ``redeem(redemption)``, which returns a decision that is allowed once for each ticket. Limiters on any other store
    refuse operations and tickets.
    """

    in_process: bool
    """Whether no method ever waits, so that synchronous code can call it without an event loop."""

    async def take(self, takes: Sequence[Take]) -> list[Decision]:
        """One decision for each take, in order; each take sees what the ones before it have booked."""
        ...

    async def peek(self, take: Take) -> Decision:
        """The decision that ``take`` would get now; nothing is taken."""
        ...

    async def settle(self, settlement: Settlement) -> None:
        """Give back units that a take charged in excess, or debit missing ones; a second call does nothing."""
        ...

    async def reset(self, charges: Sequence[Charge]) -> None:
        """Forget the buckets of these charges, as if they had never been used."""
        ...

    async def aclose(self) -> None:
        """Close all connections; a store that is used again afterwards opens new ones."""
        ...


def __getattr__(name: str) -> Any:
    """Import ``RedisStore`` at first use, because the memory store does not need redis."""
    if name == "RedisStore":
        from .redis import RedisStore

        return RedisStore
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@shows_use('open_store("redis://localhost:6379/0")')
def open_store(url: str, **options: Any) -> Store:
    """The store at ``url``: ``memory://``, ``redis://``, ``unix://``, ``redis+cluster://`` or ``redis+sentinel://``.

    Cluster and Sentinel take several hosts, separated by commas; ``rediss`` instead of ``redis`` means TLS. ``options``
    go to ``MemoryStore`` or ``RedisStore``. The store connects at first use.
    Raises ``ConfigurationError`` for any other URL, in which the password is hidden.
    """
    scheme, separator, _ = url.partition("://") if isinstance(url, str) else ("", "", "")
    if url == "memory://":
        return MemoryStore(**options)
    if separator and scheme in SCHEMES:
        from .redis import RedisStore

        return RedisStore(url, **options)
    raise ConfigurationError(
        f"{shown(url)} is not the URL of a store{_hint_of(url)}: "
        '"memory://", "redis://localhost:6379/0", "rediss://user:password@host:6380/0", "unix:///run/redis.sock", '
        '"redis+cluster://host1:6379,host2:6379" or "redis+sentinel://host1:26379,host2:26379/mymaster"'
    )


def _hint_of(url: object) -> str:
    """What is wrong with a URL, if that is clear and its error does not show it."""
    if not isinstance(url, str):
        return ""
    scheme, colon, _ = url.partition(":")
    if colon and scheme in SCHEMES:
        return f", two slashes follow its colon, {scheme}://"
    return ", it begins with a space" if url[:1].isspace() else ""


def submitter(store: Store) -> Submit:
    """``store.submit``, or the same over ``store.take`` for a store that has no ``submit``."""
    submit: Submit | None = _beside_take(store, "submit")
    if submit is not None:
        return submit

    async def take_one(take: Take) -> Decision:
        (decision,) = await store.take([take])
        return decision

    return take_one


def charge_submitter(store: Store) -> SubmitCharge | None:
    """``store.submit_charge``; ``None`` for a store that has none."""
    submit_charge: SubmitCharge | None = _beside_take(store, "submit_charge")
    return submit_charge


def booker(store: Store) -> Book | None:
    """``store.book``; ``None`` for a store that has none, or is not in this process."""
    book: Book | None = _beside_take(store, "book", "submit") if store.in_process else None
    return book


def _beside_take(store: Store, name: str, *others: str) -> Any:
    """A method of a store, unless a subclass overrides ``take`` or one of ``others``, which must not be bypassed."""
    replaced = {"take", *others}
    defining = next((kind for kind in type(store).__mro__ if not replaced.isdisjoint(vars(kind))), None)
    return getattr(store, name, None) if defining is None or name in vars(defining) else None


def observe(store: Store, observer: Observer) -> None:
    """Call ``observer.store_called`` after each call of a store to its server; a store without a server has no calls.

    The store holds the observer weakly.
    """
    add = getattr(store, "observe", None)
    if add is not None:
        add(observer)


class OperatingStore(Store, Protocol):
    """A store that remembers operations."""

    async def redeem(self, redemption: Redemption) -> Decision:
        """The decision as foreseen now: allowed the first time, unless the ticket was cancelled before."""
        ...


def operating(store: Store) -> OperatingStore:
    """``store`` itself; ``ConfigurationError`` if it does not remember operations."""
    if getattr(store, "remembers_operations", False):
        return cast("OperatingStore", store)
    raise ConfigurationError(
        f"{store!r} remembers no operations, so that operation= and tickets would be charged or used more than once: "
        "use a MemoryStore or a RedisStore, or leave them out"
    )


async def settle(store: Store, decision: Decision, actual: Sequence[float | None], *, is_unused: bool = False) -> None:
    """Correct a decision to the ``actual`` cost of each of its charges; each charge is settled once.

    ``None`` leaves a charge for a later call. ``is_unused`` says that no call has gone at its slot. Raises
    ``StoreError`` if the store does not answer; it can then be called again.
    """
    if decision.settled:
        return
    if decision.parts:
        await _settle_parts(store, decision, actual)
    costs = {charge.bucket: cost for charge, cost in zip(decision.charges, actual)}
    buckets = [bucket for bucket, cost in costs.items() if cost is not None and bucket not in decision.settled_buckets]
    settlement = settled_as(decision, [0.0 if cost is None else cost for cost in actual])
    if settlement is not None:
        if len(buckets) < len(costs):
            settlement = replace(settlement, undone=None)
        settled_charges = [each for each in settlement.settled_charges if each.charge.bucket in buckets]
        await _settle_each(store, settlement, settled_charges, is_unused)
    decision.settled_buckets = (*decision.settled_buckets, *buckets)
    decision.settled = len(decision.settled_buckets) == len(costs)


async def _settle_each(
    store: Store, settlement: Settlement, settled_charges: Sequence[SettledCharge], is_unused: bool
) -> None:
    """Settle each charge by itself, so that copies of the decision may settle others; an operation is one settlement.

    The settlements go to a server together.
    """
    together = [settled_charges] if settlement.taken is not None else [[each] for each in settled_charges]
    settlements = [replace(settlement, settled_charges=tuple(each)) for each in together if each]
    calls = [apply_settlement(store, each, is_unused=is_unused) for each in settlements]
    if store.in_process or len(calls) == 1:
        for call in calls:
            await call
    else:
        await asyncio.gather(*calls)


async def _settle_parts(store: Store, decision: Decision, actual: Sequence[float | None]) -> None:
    """Settle the parts of a decision; a charge that the decision no longer has stays as it was."""
    costs = {charge.bucket: cost for charge, cost in zip(decision.charges, actual)}
    for part in decision.parts:
        await settle(store, part, [costs.get(charge.bucket, charge.cost) for charge in part.charges])


async def apply_settlement(store: Store, settlement: Settlement, *, is_unused: bool = False) -> None:
    """Send a settlement to the store, and notify the callers of this process that wait for its buckets."""
    await store.settle(settlement)
    settled = settlement.settled_charges
    _units_came_back(
        store, [(each.charge, 0.0 if is_unused else max(each.charge.cost - each.actual, 0.0)) for each in settled]
    )


async def reset(store: Store, charges: Sequence[Charge]) -> None:
    """Forget the buckets of these charges, and notify the callers of this process that wait for them."""
    await store.reset(charges)
    _units_came_back(store, [(charge, math.inf) for charge in charges])


CameBack: TypeAlias = Sequence[tuple[Charge, float]]
"""Charges, and how many used units came back to their buckets; infinity for all of them."""

_listeners: ByStore[Callable[[CameBack], None]] = ByStore()


def when_units_come_back(store: Store, listener: Callable[[CameBack], None]) -> None:
    """Call ``listener`` with the units that come back by settlements and resets of this process. A store has just one.

    The listener must not refer to the store, which it would keep alive. A store of a class without weak references is
    always kept alive.
    """
    _listeners[store] = listener


def _units_came_back(store: Store, came_back: CameBack) -> None:
    if _listeners:
        listener = _listeners.get(store)
        if listener is not None:
            listener(came_back)
