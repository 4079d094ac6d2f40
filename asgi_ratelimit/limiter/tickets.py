"""Tickets: slots that one process books and another one uses, once, as a text that goes with a job.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from random import getrandbits
from typing import Any, cast

from ..algorithms import Booked, unused
from ..buckets import DEFAULT_NAME, as_bytes, digest
from ..decision import Charge, Decision, Settled, Settlement, Take, booked_charges, checked_cost
from ..quotas import MAX_CHARGES, SECOND_US, FixedWindow, Quota, RollingWindow, TokenBucket
from ..waiting import PaceTimeout
from .charges import checked_operation

FORMAT = 6
"""The version of the text, which is its first item."""

KINDS: dict[str, type[Quota]] = {"bucket": TokenBucket, "fixed": FixedWindow, "rolling": RollingWindow}

LONGEST_TEXT = 8192
"""Characters of the longest text of a ticket."""

LATEST = 1e10
"""The latest Unix time of a ticket: in the year 2286."""

REDEEMABLE_FOR = 7 * 86_400.0
"""Seconds after its slot for which a ticket can be redeemed, and cancelled."""


REDEEMED = 1 << 60
"""The ids of decisions of redeemed tickets begin here. Their place in the queue is not known any more."""


@dataclass(frozen=True, slots=True)
class TicketCharge:
    """One charge of a ticket: the name of its quota, its key and its cost, and the quota as it was booked under.

    ``booked`` is where it is in the queue, as in ``Booked``; ``None`` for a shared charge, which is taken when the
    ticket is redeemed. ``numbers`` are the kind of the quota and its arguments.
    """

    quota: str
    key: str
    cost: float
    booked: tuple[float, float, float] | None
    numbers: tuple[str | float, ...]

    def __post_init__(self) -> None:
        _require(isinstance(self.quota, str) and isinstance(self.key, str), self)
        _require(_is_number(self.cost), self)
        checked_cost(self.cost)
        booked = (0.0, 0.0, 0.0) if self.booked is None else self.booked
        _require(len(booked) == 3 and all(map(_is_number, booked)), self)
        self.booked_quota()

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
    id: int
    ticket_charges: tuple[TicketCharge, ...]
    degraded: bool = False
    operation: str | None = None

    def __post_init__(self) -> None:
        _require(isinstance(self.name, str) and self.name != "", self)
        _require(_is_number(self.ready_at) and 0 <= self.ready_at <= LATEST, self)
        _require(_is_number(self.delay) and 0 <= self.delay <= LATEST, self)
        _require(type(self.id) is int and 0 <= self.id < 2**64, self)
        _require(isinstance(self.degraded, bool), self)
        checked_operation(self.operation)
        charges = self.ticket_charges
        _require(isinstance(charges, tuple) and all(type(charge) is TicketCharge for charge in charges), self)
        _require(0 < len({charge.quota for charge in charges}) == len(charges) <= MAX_CHARGES, self)
        _require(charges[0].booked is not None, self)

    @classmethod
    def of(cls, decision: Decision, shared: Sequence[Charge] = ()) -> Ticket:
        """The ticket of a decision that has booked a slot; ``PaceTimeout`` if it has not.

        ``shared`` are charges that are taken when it is redeemed. Raises ``ValueError`` for charges that are too many,
        or whose keys are too long, for a ticket.
        """
        if not decision.allowed:
            raise PaceTimeout("no slot was booked, so there is no ticket for it", decision)
        is_redeemed = decision.id >= REDEEMED
        booked = zip(decision.charges, booked_charges(decision))
        charges = [
            _ticket_charge(charge, (0.0 if is_redeemed else each.at, each.slot, each.place)) for charge, each in booked
        ]
        ticket = cls(
            decision.charges[0].name or DEFAULT_NAME,
            decision.ready_at,
            decision.delay,
            decision.id or getrandbits(52),
            (*charges, *[_ticket_charge(charge, None) for charge in shared]),
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
        except (ValueError, TypeError, AttributeError, RecursionError, OverflowError):
            pass
        raise ValueError(f"{text!r:.200} is not a ticket: pass on str(await limiter.reserve(key))")

    def __str__(self) -> str:
        charges = [[each.quota, each.key, each.cost, each.booked, each.numbers] for each in self.ticket_charges]
        items = [FORMAT, self.name, self.ready_at, self.delay, self.id, charges, self.degraded, self.operation]
        packed = json.dumps(items, separators=(",", ":"))
        return base64.urlsafe_b64encode(packed.encode()).decode().rstrip("=")

    def cancellation(self, quotas: Sequence[Quota], name: str) -> list[Settlement]:
        """The settlements that give the slot back; the first one decides whether the ticket was redeemed before.

        The slot belongs to the quota under which it was booked, whatever has changed since. Raises ``ValueError`` if it
        is not a ticket of that limiter.
        """
        undone = None if self.operation is None else Take(self._charges(quotas, name, True), operation=self.operation)
        first, *others = self._settlements(quotas, name, undone)
        return [first, *others]

    def claim(self, quotas: Sequence[Quota], name: str) -> Settlement:
        """The settlement that uses the ticket, once, for this caller only; it leaves all charges as they are."""
        first = self._settlements(quotas, name, None)[0]
        first.actual = first.booked.cost
        return first

    def decision(self, quotas: Sequence[Quota], name: str, settled: Settled) -> Decision:
        """The decision of the ticket for a caller that comes at the time of ``settled``."""
        take = Take(self._charges(quotas, name, True), math.inf)
        wait_us = max(float(round(self.ready_at * SECOND_US)) - settled.now_us, 0.0)
        stored = [settled.state, *[unused(charge.quota, settled.now_us) for charge in take.charges[1:]]]
        identity = REDEEMED | int(digest(as_bytes(f"after {self.id}"))[:13], 16)
        return Decision(take, True, wait_us, stored, settled.now_us, identity, degraded=self.degraded)

    def shared_charges(self, quotas: Sequence[Quota], name: str) -> tuple[Charge, ...]:
        """The charges that are taken when it is redeemed."""
        return self._charges(quotas, name, False)

    def _charges(self, quotas: Sequence[Quota], name: str, is_booked: bool) -> tuple[Charge, ...]:
        """Its charges, with a limiter's quotas; ``ValueError`` if it is not a ticket of that limiter."""
        by_name = {quota.name: quota for quota in quotas}
        if self.name != name or not all(charge.quota in by_name for charge in self.ticket_charges):
            raise ValueError(
                f"a ticket of the limiter {self.name!r} for {[charge.quota for charge in self.ticket_charges]} is not "
                f"one of {name!r} with {list(by_name)}"
            )
        own = [charge for charge in self.ticket_charges if (charge.booked is not None) == is_booked]
        return tuple([Charge(by_name[each.quota], each.key, each.cost, name) for each in own])

    def _settlements(self, quotas: Sequence[Quota], name: str, undone: Take | None) -> list[Settlement]:
        self._charges(quotas, name, True)
        until_us = float(round((self.ready_at + REDEEMABLE_FOR) * SECOND_US))
        settlements = []
        for each in self.ticket_charges:
            if each.booked is not None:
                charge = Charge(each.booked_quota(), each.key, each.cost, name)
                at, slot, place = each.booked
                booked, token = Booked(at, slot, place, each.cost), getrandbits(52) + 1
                settlements.append(Settlement(charge, booked, 0.0, self.id, self.degraded, undone, until_us, token))
        return settlements


def _ticket_charge(charge: Charge, booked: tuple[float, float, float] | None) -> TicketCharge:
    kind = next(kind for kind, made in KINDS.items() if made is type(charge.quota))
    numbers = (kind, *[getattr(charge.quota, each) for each in _arguments(type(charge.quota))])
    return TicketCharge(charge.quota.name, charge.key, charge.cost, booked, numbers)


def _arguments(kind: type[Quota]) -> list[str]:
    """The names of the arguments of a quota that are numbers, in order."""
    return [each.name for each in fields(kind) if each.init and each.name != "name"]


def _ticket(items: Any) -> Ticket:
    """The ticket of these items; ``ValueError`` or ``TypeError`` unless their number and types are right."""
    version, name, ready_at, delay, identity, charges, degraded, operation = items
    _require(version == FORMAT and isinstance(charges, list), items)
    booked = tuple([_booked(charge) for charge in charges])
    return Ticket(name, ready_at, delay, identity, booked, degraded, operation)


def _booked(items: Any) -> TicketCharge:
    quota, key, cost, booked, numbers = items
    return TicketCharge(quota, key, cost, None if booked is None else tuple(booked), tuple(numbers))


def _require(condition: bool, thing: object) -> None:
    if not condition:
        raise ValueError(f"no ticket has {thing!r:.200}")


def _is_number(value: object) -> bool:
    """Whether a value is a usable number: not NaN, not infinite, and not above what any state holds."""
    return type(value) in (int, float) and -(2.0**64) < value < 2.0**64  # type: ignore[operator]
