"""What every store is: protocols, decisions that are there at once, operations, settlements, reports of calls.

And what this process has for each store: values, and which owners use which names there. Two limits of one name must
agree on what their buckets hold.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from threading import RLock
from typing import Any, Protocol, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

from ..algorithms import Booked
from ..algorithms.take import State, pack, place_of, read
from ..buckets import as_bytes, digest
from ..clock import Clock
from ..decision import Charge, Decision, Take, with_charges
from ..errors import ConfigurationError, require_number
from ..quota_text import readable
from ..quotas import SECOND_US, InFlight, Quota

T = TypeVar("T")


class Decisions(list[Decision]):
    """Decisions that are there at once; ``await`` returns them too, so that every store can be awaited."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, list[Decision]]:
        return self
        yield  # a generator


class Documents(Protocol):
    """Values of bytes by name, and parts of a name, each with a content of its own.

    ``seconds`` is how long a value lives; ``None`` is forever. Each method raises ``StoreError`` if the store does not
    answer.
    """

    async def read(self, name: str) -> bytes | None:
        """The content of a document; ``None`` if there is none."""

    async def write(self, name: str, content: bytes, *, seconds: float | None = None) -> None:
        """Replace a document, whatever it was."""

    async def replace(self, name: str, old: bytes | None, new: bytes) -> bool:
        """Replace a document if it is still ``old``, forever, and return whether it was; ``None``: there was none."""

    async def read_parts(self, name: str) -> dict[str, bytes]:
        """The contents of all parts of a name."""

    async def write_part(self, name: str, part: str, content: bytes, *, seconds: float) -> None:
        """Replace one part, whatever it was. The others stay; all of them live ``seconds`` from now on."""

    async def aclose(self) -> None:
        """Close the connection of the running event loop, if there is one; a later call opens it again."""


class Store(Protocol):
    """Keeps the states of buckets, and decides takes, each all or nothing.

    Limiters need no more than these members. ``in_process`` says that no method ever waits, so that code without
    ``async`` can call it without an event loop.
    """

    in_process: bool

    @property
    def clock(self) -> Clock | None:
        """The clock that the store decides by; ``None`` for that of a server."""

    @property
    def documents(self) -> Documents:
        """Small texts beside the buckets, which all processes on the store share."""

    def take(self, takes: Sequence[Take]) -> Decisions | Awaitable[list[Decision]]:
        """One decision for each take, in order; each take sees what the ones before it have booked.

        Never raises ``StoreError``: without its server, the store decides as ``on_error`` says.
        """

    async def peek(self, take: Take) -> Decision:
        """The decision that ``take`` would get now; nothing is taken."""

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """Give back units that were charged in excess, or debit missing ones; each settlement once."""

    async def reset(self, charges: Sequence[Charge]) -> None:
        """Forget the buckets of these charges, as if they had never been used."""

    async def aclose(self) -> None:
        """Close all connections; a store that is used again afterwards opens new ones."""

    def observe(self, observer: Observer) -> None:
        """Call ``observer.store_called`` after each call to a server, once, however often it is added."""


@dataclass(frozen=True, slots=True)
class StoreCall:
    """One call of a store to its server: ``size`` takes and other actions together, which took ``seconds``.

    ``store`` is the prefix of the store's keys. ``error`` is the reason why the call failed, if it did. ``is_out`` says
    whether the store, or a node of it, has been out since then, and ``ledger`` is the number of entries in its outage
    ledger.
    """

    store: str
    size: int
    seconds: float
    error: Exception | None
    is_out: bool
    ledger: int


class Observer(Protocol):
    """Something that is called with each call of a store, in the event loop, so it must not block."""

    def store_called(self, call: StoreCall, /) -> object:
        """A call has ended."""


def granting(take: Take, units: float) -> Take:
    """The take of so many units of each charge, which ``best_effort`` has found."""
    return with_charges(take, tuple([replace(charge, cost=units) for charge in take.charges]))


def joined(take: Take, parts: Sequence[Decision], **own: Any) -> Decision:
    """One decision of those on the parts of a take: as the first of them, but for its ``own`` values."""
    states = {charge.bucket: state for each in parts for charge, state in zip(each.take.charges, each.stored)}
    stored, degraded = [states[charge.bucket] for charge in take.charges], any(each.degraded for each in parts)
    return replace(parts[0], take=take, stored=stored, degraded=degraded, **own)


# Operations


def checked_operation_ttl(seconds: float) -> float:
    """``operation_ttl`` in whole microseconds; ``ConfigurationError`` unless it is from 0.001 seconds to a year."""
    what, use = "operation_ttl must be seconds from 0.001 to a year", "operation_ttl=600"
    return float(round(require_number(what, seconds, 0.001, 31_536_000, use, (int, float)) * SECOND_US))


def operation_text(take: Take) -> str:
    """The operation of a take that names one: equal for takes with the same id, buckets, costs and ``best_effort``.

    It begins with the first bucket, so that both are in one slot of a cluster.
    """
    charges = [f"{charge.bucket} {float(charge.cost)!r}" for charge in take.charges]
    text = "\n".join(["best effort" if take.best_effort else "take", *charges, str(take.operation)])
    return f"{take.charges[0].bucket}:{digest(as_bytes(text))}"


def repeated(decision: Decision, take: Take, now_us: float) -> Decision:
    """An earlier decision as the answer to another take under the same operation, at the time ``now_us``."""
    asked = granting(take, decision.take.charges[0].cost) if take.best_effort else take
    stored = [  # the quotas of that take may have had other numbers
        read(charge.quota, pack(earlier.quota, state), decision.now_us)
        for charge, earlier, state in zip(asked.charges, decision.take.charges, decision.stored)
    ]
    return replace(decision, take=asked, stored=stored, repeated=True, asked_us=now_us)


# Settlements


# The ids of decisions that cannot be settled begin here, above all others.
SETTLED = 1 << 60


@dataclass(slots=True)
class Settlement:
    """The ``actual`` cost of a charge that was booked, settled once for each ``id`` and bucket.

    ``degraded`` is that of its decision. ``undone`` is the take if all of it is given back, and it names an operation:
    that is then forgotten. It is remembered until ``until_us``, at least, and does nothing from then on (0: there is
    no such time); with an ``id`` of 0 it is not remembered. ``token`` is the caller's own: the same settlement with the
    same token may be sent again.
    """

    charge: Charge
    booked: Booked
    actual: float
    id: int
    degraded: bool = False
    undone: Take | None = None
    until_us: float = 0.0
    token: int = 0

    @property
    def text(self) -> str:
        """What marks this charge of its decision as settled."""
        return f"{self.charge.bucket}:{self.id:x}"


@dataclass(slots=True)
class Settled:
    """The answer to a settlement: whether it is the first one, at the time ``now_us``, and the state that now holds."""

    is_first: bool
    now_us: float
    state: State


def booked_of(decision: Decision, charge: Charge, state: State) -> Booked:
    """The record of a charge of a decision that was allowed, with which it can be settled."""
    return Booked(state.at, decision.now_us + decision.wait_us, place_of(charge.quota, state), charge.cost)


def settlements_of(decision: Decision, actual: Sequence[float | None], is_undone: bool = False) -> list[Settlement]:
    """How to settle a decision at the ``actual`` cost of each charge; ``None`` leaves a charge for a later call.

    A cost that is as charged is settled as well, so that no copy of the decision is settled differently later.
    Nothing was charged by a refusal, nor by a condition, and nothing is left to settle of a ticket that was redeemed.
    A place of ``InFlight`` is given back at its end only, whatever the cost, except in what ``is_undone``.
    """
    settlements: list[Settlement] = []
    identity = 0 if is_undone else decision.id
    if decision.allowed and 0 < decision.id < SETTLED:
        take, degraded = decision.take, decision.degraded
        undone = take if take.operation is not None and set(actual) == {0} else None
        for charge, state, units in zip(take.charges, decision.stored, actual):
            if units is not None and charge.cost and not (identity and type(charge.quota) is InFlight):
                booked = booked_of(decision, charge, state)
                settlements.append(Settlement(charge, booked, units, identity, degraded, undone))
    return settlements


def lease_settlement(charge: Charge, lease: float, actual: float) -> Settlement:
    """How to end or renew a lease of ``InFlight``; it may be sent any number of times, and is not remembered."""
    return Settlement(charge, Booked(0.0, lease, lease, 1.0), actual, 0)


def undoing(decision: Decision) -> list[Settlement]:
    """How to give back all of a decision that nobody else has, or settles later.

    It is sent once and not remembered, so a client leaves nothing in the store by requests that are not admitted.
    """
    return settlements_of(decision, [0.0] * len(decision.stored), is_undone=True)


# What this process has for each store


# Guards what stores have in this process. A fork waits for it, so a child finds it free, and nothing half done.
lock = RLock()

os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)


class ByStore(WeakKeyDictionary[Any, T]):
    """Values by store, each for as long as its store lives. Threads share them.

    Called with a store, it returns the value of that store, which ``make`` makes at first use.
    """

    def __init__(self, make: Any = None) -> None:
        super().__init__()
        self._make = make

    def __call__(self, store: Any) -> T:
        return self.get(store) or self.made(store, self._make)

    def made(self, store: Any, make: Callable[[Any], T]) -> T:
        """The value of a store, which is made unless another thread has just done so."""
        with lock:
            value = self.get(store)
            if value is None:
                value = self[store] = make(store)
            return value


def living(values: WeakKeyDictionary[Any, T]) -> list[tuple[Any, T]]:
    """All keys that live, and their values; other threads may add some meanwhile."""
    keys = [each() for each in values.keyrefs()]
    return [(key, values[key]) for key in keys if key is not None]


# By the names of a limit and of a quota, that quota, and whether ``owned`` yields it.
Uses: TypeAlias = dict[tuple[str, str], tuple[Quota, bool]]

# What each living owner uses, by store.
_owners: ByStore[WeakKeyDictionary[object, Uses]] = ByStore(lambda store: WeakKeyDictionary())


def register(
    store: Store,
    owner: object,
    quotas: Iterable[tuple[str, Quota]],
    *,
    unlisted: Iterable[tuple[str, Quota]] = (),
    instead: bool = False,
    is_peer: Callable[[object], bool] = lambda other: False,
) -> None:
    """Register ``owner``, for as long as it lives, as a user of these quotas, each under the name of its limit.

    With ``instead``, these replace all that it has used on this store before. ``owned`` does not yield what is
    ``unlisted``. ``is_peer`` says that another owner is about to change as this one does, and need not agree yet.
    Raises ``ConfigurationError`` if a living owner uses another quota of the same name under the same limit's name, and
    then changes nothing.
    """
    owners = _owners(store)
    new: Uses = {(name, quota.name): (quota, False) for name, quota in unlisted}
    new |= {(name, quota.name): (quota, True) for name, quota in quotas}
    for other, uses in living(owners):
        for names in uses.keys() & new.keys():
            before, quota = uses[names][0], new[names][0]
            if before != quota and other is not owner and not is_peer(other):
                both = f"two limits named {names[0]!r} share a store and have different quotas named {names[1]!r}"
                shared = f"{readable(before)} and {readable(quota)} (margin= makes another), which would share buckets"
                right = 'give one of them another name, name="uploads", or, in tests of several apps, another store'
                raise ConfigurationError(f"{both}, {shared}: {right}")
    owners[owner] = new if instead else owners.get(owner, {}) | new


def owned(store: Store) -> Iterator[tuple[str, Quota]]:
    """The quotas that living owners use on a store, each under the name of its limit."""
    listed: dict[tuple[str, str], Quota] = {}
    for _, uses in living(_owners[store]) if store in _owners else ():
        listed = {names: quota for names, (quota, is_listed) in uses.items() if is_listed} | listed
    return iter([(name, quota) for (name, _), quota in listed.items()])
