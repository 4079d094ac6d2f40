"""Tickets: slots that one process books and another one uses, once, as a text that goes with a job.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields, replace
from random import getrandbits
from typing import Any, cast

from ..algorithms import BIRTH_BITS, settlement_of
from ..buckets import DEFAULT_NAME, as_bytes, digest
from ..decision import Charge, Decision, Redemption, SettledCharge, Settlement, Take, checked_cost
from ..quotas import MAX_CHARGES, SECOND_US, FixedWindow, Quota, RollingWindow, TokenBucket
from ..waiting import PaceTimeout
from .charges import checked_operation

FORMAT, WITHOUT_NUMBERS, WITH_UNITS = 4, 3, 5
"""The version of the text, which is its first item; an older one, whose charges have no numbers; and that of a ticket
for which the store was debited less than it costs."""

MISSING: dict[int, list[Any]] = {WITH_UNITS: [], FORMAT: [None], WITHOUT_NUMBERS: [[], None]}
"""What the charges of a text lack, by its version."""

KINDS: dict[str, type[Quota]] = {"bucket": TokenBucket, "fixed": FixedWindow, "rolling": RollingWindow}

LONGEST_TEXT = 8192
"""Characters of the longest text of a ticket."""

LATEST = 1e10
"""The latest Unix time of a ticket: in the year 2286."""

HIGHEST_PLACE = 2.0**110
"""Above any place: the largest quota has a level of 2**98 in use, and of 2**107 if it is booked until ``LATEST``."""

REDEEMABLE_FOR = 7 * 86_400.0
"""Seconds after its slot for which a ticket can be redeemed, and cancelled."""


@dataclass(frozen=True, slots=True)
class TicketCharge:
    """One charge of a ticket, with the name of its quota. The other fields are those of ``SettledCharge``.

    ``numbers`` are the kind of the quota and its arguments, as they were when it was booked. ``units`` are what the
    store was debited of the cost, ``None`` for all of it.
    """

    quota: str
    key: str
    cost: float
    since_us: float
    generation: int
    place: float
    slot_us: float
    numbers: tuple[str | float, ...] = ()
    units: float | None = None

    def __post_init__(self) -> None:
        _require(isinstance(self.quota, str) and isinstance(self.key, str), self)
        _require(_is_number(self.cost) and _is_number(self.place, HIGHEST_PLACE), self)
        checked_cost(self.cost)
        _require(_is_time(self.since_us) and _is_time(self.slot_us), self)
        _require(type(self.generation) is int and 0 <= self.generation < 2**BIRTH_BITS, self)
        if self.numbers:
            self.booked_quota()
        if self.units is not None:
            _require(_is_number(self.units) and self.units <= self.cost, self)
            checked_cost(self.units)

    def settled(self, charge: Charge) -> SettledCharge:
        """How it is given back, as one of this charge."""
        cost = self.cost if self.units is None else self.units
        booked = (self.since_us, self.generation, self.place, self.slot_us)
        return SettledCharge(replace(charge, cost=cost), *booked, 0.0)

    def booked_quota(self) -> Quota:
        """The quota under which it was booked. Raises ``ValueError`` for numbers that no quota has."""
        kind, *arguments = self.numbers
        make: Any = KINDS.get(str(kind))
        _require(make is not None and all(type(each) in (int, float) for each in arguments), self)
        _require(len(arguments) == len(_arguments(make)), self)
        return cast("Quota", make(*arguments, name=self.quota))


@dataclass(frozen=True, slots=True)
class Ticket:
    """A slot of the limiter ``name``: ``ready_at`` in Unix time, ``delay`` in seconds after it was booked.

    ``str(ticket)`` is a text of letters, digits, ``-`` and ``_``, and ``Ticket.parse`` reads it. Anyone who can write
    tickets can run jobs at any time: keep them where your jobs are. ``degraded`` means that it was booked without the
    store. ``operation`` is the operation that it was booked under. Raises ``ValueError`` for values that no ticket has.
    """

    name: str
    ready_at: float
    delay: float
    id: float
    ticket_charges: tuple[TicketCharge, ...]
    degraded: bool = False
    operation: str | None = None

    def __post_init__(self) -> None:
        _require(isinstance(self.name, str) and self.name != "", self)
        _require(_is_number(self.ready_at) and 0 <= self.ready_at <= LATEST, self)
        _require(_is_number(self.delay) and 0 <= self.delay <= LATEST, self)
        _require(_is_number(self.id) and 0 <= self.id < 2**53 and self.id == self.id // 1, self)
        _require(isinstance(self.degraded, bool), self)
        checked_operation(self.operation)
        charges = self.ticket_charges
        _require(isinstance(charges, tuple) and all(type(charge) is TicketCharge for charge in charges), self)
        _require(0 < len({charge.quota for charge in charges}) == len(charges) <= MAX_CHARGES, self)

    @classmethod
    def of(cls, decision: Decision) -> Ticket:
        """The ticket of a decision that has booked a slot; ``PaceTimeout`` if it has not.

        Raises ``ValueError`` for charges that are too many, or whose keys are too long, for a ticket.
        """
        if not decision.allowed or decision.take is None:
            raise PaceTimeout("no slot was booked, so there is no ticket for it", decision)
        charges = decision.take.charges
        settlement = settlement_of(decision, [0.0] * len(decision.states))
        if settlement is None:  # there is a time, but nothing to give back
            booked = [_ticket_charge(SettledCharge(each, 0.0, 0, 0.0, 0.0, 0.0), each.cost) for each in charges]
            identity = float(decision.birth or getrandbits(53))
        else:
            pairs = zip(settlement.settled_charges, charges)
            booked, identity = [_ticket_charge(settled, charge.cost) for settled, charge in pairs], settlement.id
        ticket = cls(
            charges[0].name or DEFAULT_NAME,
            decision.ready_at,
            decision.delay,
            identity,
            tuple(booked),
            decision.degraded,
            decision.take.operation,
        )
        if len(str(ticket)) > LONGEST_TEXT:
            raise ValueError(
                f"a ticket has at most {LONGEST_TEXT} characters, not {len(str(ticket))}: use shorter keys"
            )
        return ticket

    @classmethod
    def parse(cls, text: str) -> Ticket:
        """The ticket that a text stands for; ``ValueError`` if it is not the text of a ticket."""
        try:
            if len(text) <= LONGEST_TEXT:
                padded = text.encode("ascii") + b"=" * (-len(text) % 4)
                return _ticket(json.loads(base64.b64decode(padded, b"-_", validate=True)))
        except (ValueError, TypeError, AttributeError, RecursionError):
            pass
        raise ValueError(f"{text!r:.200} is not a ticket: pass on str(await limiter.reserve(key))")

    def __str__(self) -> str:
        name, ready_at, delay, identity, charges, *others = astuple(self)
        version = WITH_UNITS
        if all(charge.units is None for charge in self.ticket_charges):
            version, charges = FORMAT, [charge[:-1] for charge in charges]
        items = [version, name, ready_at, delay, identity, charges, *others]
        packed = json.dumps(items, separators=(",", ":"))
        return base64.urlsafe_b64encode(packed.encode()).decode().rstrip("=")

    def charges(self, quotas: Sequence[Quota], name: str) -> tuple[Charge, ...]:
        """Its charges, with a limiter's quotas; ``ValueError`` if it is not a ticket of that limiter."""
        by_name = {quota.name: quota for quota in quotas}
        if self.name != name or not all(charge.quota in by_name for charge in self.ticket_charges):
            raise ValueError(
                f"a ticket of the limiter {self.name!r} for {[charge.quota for charge in self.ticket_charges]} is not "
                f"one of {name!r} with {list(by_name)}"
            )
        return tuple([Charge(by_name[charge.quota], charge.key, charge.cost, name) for charge in self.ticket_charges])

    def cancellation(self, quotas: Sequence[Quota], name: str) -> Settlement:
        """The settlement that gives the slot back, unless the ticket was redeemed.

        The slot belongs to the quota under which it was booked, whatever has changed since.
        """
        charges = [
            replace(charge, quota=booked.booked_quota()) if booked.numbers else charge
            for charge, booked in zip(self.charges(quotas, name), self.ticket_charges)
        ]
        settled = [booked.settled(charge) for charge, booked in zip(charges, self.ticket_charges)]
        undone = None if self.operation is None else Take(tuple(charges), operation=self.operation)
        return Settlement(self.id, tuple(settled), self.degraded, self._until_us, undone, undone)

    def redemption(self, quotas: Sequence[Quota], name: str) -> Redemption:
        """The redemption that uses the ticket, once, for this caller only; its take books another slot."""
        take = Take(self.charges(quotas, name), math.inf, may_settle=True, operation=f"\0ticket {self.id:.0f}")
        return Redemption(self.id, take, self._until_us, float(getrandbits(53)))

    @property
    def _until_us(self) -> float:
        """The time from which the ticket is over."""
        return float(round((self.ready_at + REDEEMABLE_FOR) * SECOND_US))


def _ticket_charge(settled: SettledCharge, cost: float) -> TicketCharge:
    charge, units = settled.charge, None if settled.charge.cost == cost else settled.charge.cost
    booked = (settled.since_us, settled.generation, settled.place, settled.slot_us)
    kind = next(kind for kind, made in KINDS.items() if made is type(charge.quota))
    numbers = (kind, *[getattr(charge.quota, each) for each in _arguments(type(charge.quota))])
    return TicketCharge(charge.quota.name, charge.key, cost, *booked, numbers, units)


def _arguments(kind: type[Quota]) -> list[str]:
    """The names of the arguments of a quota that are numbers, in order."""
    return [each.name for each in fields(kind) if each.init and each.name != "name"]


def _ticket(items: Any) -> Ticket:
    """The ticket of these items; ``ValueError`` or ``TypeError`` unless their number and types are right."""
    version, name, ready_at, delay, identity, charges, degraded, operation = items
    _require(version in MISSING and isinstance(charges, list), items)
    booked = tuple([_booked([*charge, *MISSING[version]]) for charge in charges])
    return Ticket(name, ready_at, delay, identity, booked, degraded, operation)


def _booked(items: Any) -> TicketCharge:
    quota, key, cost, since_us, generation, place, slot_us, numbers, units = items
    return TicketCharge(quota, key, cost, since_us, generation, place, slot_us, tuple(numbers), units)


def _require(condition: bool, thing: object) -> None:
    if not condition:
        raise ValueError(f"no ticket has {thing!r:.200}")


def _is_number(value: object, most: float = 2.0**60) -> bool:
    """Whether a value is a usable number: not NaN, not infinite, and below ``most``."""
    return type(value) in (int, float) and -most < value < most  # type: ignore[operator]


def _is_time(value: float) -> bool:
    return _is_number(value) and 0 <= value <= (LATEST + REDEEMABLE_FOR) * SECOND_US


def late_by(ticket: Ticket, peeked: Decision) -> float:
    """Seconds between a ticket's slot and a later ``peek``; below 0 if the slot is still to come."""
    return peeked.now_us / SECOND_US - ticket.ready_at


def on_time(ticket: Ticket, peeked: Decision) -> Decision:
    """The decision for a ticket that is not late. A ticket of this decision is the same one, to be redeemed once."""
    delay = max(0.0, -late_by(ticket, peeked))  # in this order, it is never -0.0
    granted = ticket.ticket_charges[0].cost
    birth = int(digest(as_bytes(f"after {ticket.id!r}"))[:12], 16)
    return replace(
        peeked, granted=granted, delay=delay, retry_after=0.0, ready_at=ticket.ready_at, before=None, birth=birth
    )
