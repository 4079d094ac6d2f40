"""Tickets: slots that one process books and another one uses, as a text that goes with a job.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any

from ..algorithms import settlement_of
from ..buckets import DEFAULT_NAME
from ..decision import Charge, Decision, SettledCharge, Settlement
from ..quotas import SECOND_US, Quota
from ..waiting import PaceTimeout

FORMAT = 2
"""The version of the text, which is its first item."""


@dataclass(frozen=True, slots=True)
class TicketCharge:
    """One charge of a ticket, with the name of its quota; it is booked at the same place as in ``SettledCharge``."""

    quota: str
    key: str
    cost: float
    since_us: float
    generation: int
    place: float
    slot_us: float


@dataclass(frozen=True, slots=True)
class Ticket:
    """A slot of the limiter ``name``: ``ready_at`` in Unix time, ``delay`` in seconds after it was booked.

    ``str(ticket)`` is a text of letters, digits, ``-`` and ``_``, and ``Ticket.parse`` reads it. Anyone who can write
    tickets can run jobs at any time: keep them where your jobs are.
    """

    name: str
    ready_at: float
    delay: float
    id: float
    ticket_charges: tuple[TicketCharge, ...]

    @classmethod
    def of(cls, decision: Decision) -> Ticket:
        """The ticket of a decision that has booked a slot; ``PaceTimeout`` if it has not."""
        if not decision.allowed or decision.take is None:
            raise PaceTimeout("no slot was booked, so there is no ticket for it", decision)
        charges = decision.take.charges
        settlement = settlement_of(decision, [0.0] * len(decision.states))
        if settlement is None:  # decided without the store: there is a time, but nothing to give back
            booked = [TicketCharge(charge.quota.name, charge.key, charge.cost, 0.0, 0, 0.0, 0.0) for charge in charges]
        else:
            booked = [_ticket_charge(settled) for settled in settlement.settled_charges]
        identity = 0.0 if settlement is None else settlement.id
        return cls(charges[0].name or DEFAULT_NAME, decision.ready_at, decision.delay, identity, tuple(booked))

    @classmethod
    def parse(cls, text: str) -> Ticket:
        """The ticket that a text stands for; ``ValueError`` if it is not the text of a ticket."""
        try:
            padded = text.encode("ascii") + b"=" * (-len(text) % 4)
            items = json.loads(base64.b64decode(padded, b"-_", validate=True))
            version, name, ready_at, delay, identity, charges = items
            if version == FORMAT:
                booked = tuple([_parsed(charge) for charge in charges])
                return cls(name, ready_at, delay, identity, booked)
        except (ValueError, TypeError, AttributeError, OverflowError, binascii.Error):
            pass
        raise ValueError(f"{text!r} is not a ticket: pass on str(await limiter.reserve(key))")

    def __str__(self) -> str:
        charges = [astuple(charge) for charge in self.ticket_charges]
        packed = json.dumps([FORMAT, self.name, self.ready_at, self.delay, self.id, charges], separators=(",", ":"))
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
        """The settlement that gives the slot back."""
        charges = zip(self.charges(quotas, name), self.ticket_charges)
        settled = [
            SettledCharge(charge, booked.since_us, booked.generation, booked.place, booked.slot_us, 0.0)
            for charge, booked in charges
        ]
        return Settlement(self.id, tuple(settled))


def _ticket_charge(settled: SettledCharge) -> TicketCharge:
    charge = settled.charge
    booked = (settled.since_us, settled.generation, settled.place, settled.slot_us)
    return TicketCharge(charge.quota.name, charge.key, charge.cost, *booked)


def _parsed(charge: Any) -> TicketCharge:
    """The charge of these items; ``ValueError`` unless they have the right types."""
    quota, key, *numbers = charge
    if not all(isinstance(text, str) for text in (quota, key)):
        raise ValueError(charge)
    if not all(isinstance(number, (int, float)) for number in numbers):
        raise ValueError(charge)
    cost, since_us, generation, place, slot_us = numbers
    return TicketCharge(quota, key, cost, since_us, int(generation), place, slot_us)


def late_by(ticket: Ticket, peeked: Decision) -> float:
    """Seconds between a ticket's slot and a later peek at the store; below 0 if the slot is still to come."""
    return peeked.now_us / SECOND_US - ticket.ready_at


def on_time(ticket: Ticket, peeked: Decision) -> Decision:
    """The decision for a ticket that is not late."""
    delay = max(-late_by(ticket, peeked), 0.0)
    granted = ticket.ticket_charges[0].cost
    return replace(
        peeked, allowed=True, granted=granted, delay=delay, retry_after=0.0, ready_at=ticket.ready_at, before=None
    )
