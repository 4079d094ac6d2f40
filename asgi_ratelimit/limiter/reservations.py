"""Tickets: slots that are booked by one process and used by another, as a text that goes with a job.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..algorithms import settlement_of
from ..decision import Charge, Decision, SettledCharge, Settlement
from ..errors import PaceTimeout
from ..quotas import SECOND_US, Quota

FORMAT = 1
"""The version of the text, which it begins with."""


@dataclass(frozen=True, slots=True)
class Line:
    """One charge of a ticket, by its quota's name, and where it is booked, as in ``SettledCharge``."""

    quota: str
    key: str
    cost: float
    since_us: float
    era: float
    place: float


@dataclass(frozen=True, slots=True)
class Ticket:
    """A slot of a limiter, by its ``name``: ``ready_at`` in Unix time, ``delay`` in seconds from when it was booked.

    ``str(ticket)`` is a text of letters, digits, ``-`` and ``_``, and ``Ticket.parse`` reads it. Whoever can write
    tickets can run jobs at will: keep them where your jobs are.
    """

    name: str
    ready_at: float
    delay: float
    id: float
    lines: tuple[Line, ...]

    @classmethod
    def of(cls, decision: Decision) -> Ticket:
        """The ticket of a decision that has booked a slot; ``PaceTimeout`` for one that has not."""
        if not decision.allowed or decision.take is None:
            raise PaceTimeout("no slot was booked, so there is no ticket for it", decision)
        name = decision.take.charges[0].bucket[0]
        settlement = settlement_of(decision, [0.0] * len(decision.states))
        if settlement is None:  # decided without the store: it is a time, with nothing to give back
            lines = [
                Line(charge.quota.name, charge.key, charge.cost, 0.0, 0.0, 0.0) for charge in decision.take.charges
            ]
            return cls(name, decision.ready_at, decision.delay, 0.0, tuple(lines))
        return cls(name, decision.ready_at, decision.delay, settlement.id, tuple(map(_line, settlement.lines)))

    @classmethod
    def parse(cls, text: str) -> Ticket:
        """The ticket of a text; ``ValueError`` for what is none."""
        try:
            padded = text.encode("ascii") + b"=" * (-len(text) % 4)
            version, name, ready_at, delay, identity, lines = json.loads(base64.b64decode(padded, b"-_", validate=True))
            if version == FORMAT:
                return cls(name, ready_at, delay, identity, tuple(Line(*_checked(line)) for line in lines))
        except (ValueError, TypeError, AttributeError, binascii.Error):
            pass
        raise ValueError(f"{text!r} is no ticket: pass on str(await limiter.reserve(key))")

    def __str__(self) -> str:
        lines = [[line.quota, line.key, line.cost, line.since_us, line.era, line.place] for line in self.lines]
        packed = json.dumps([FORMAT, self.name, self.ready_at, self.delay, self.id, lines], separators=(",", ":"))
        return base64.urlsafe_b64encode(packed.encode()).decode().rstrip("=")

    def charges(self, quotas: Sequence[Quota], name: str) -> tuple[Charge, ...]:
        """What it has booked of the quotas of a limiter; ``ValueError`` if it is not a ticket of that one."""
        known = {quota.name: quota for quota in quotas}
        if self.name != name or not all(line.quota in known for line in self.lines):
            raise ValueError(
                f"a ticket of the limiter {self.name!r} for {[line.quota for line in self.lines]} is not "
                f"one of {name!r} with {list(known)}"
            )
        return tuple([Charge(known[line.quota], line.key, line.cost, name) for line in self.lines])

    def cancellation(self, quotas: Sequence[Quota], name: str) -> Settlement:
        """What it takes to give the slot back."""
        lines = zip(self.charges(quotas, name), self.lines)
        settled = [SettledCharge(charge, line.since_us, line.era, line.place, 0.0) for charge, line in lines]
        return Settlement(self.id, tuple(settled))


def _line(line: SettledCharge) -> Line:
    charge = line.charge
    return Line(charge.quota.name, charge.key, charge.cost, line.since_us, line.era, line.place)


def _checked(line: Any) -> list[Any]:
    """The parts of a line, if they are of the right kinds."""
    texts, numbers = line[:2], line[2:]
    if all(isinstance(text, str) for text in texts) and all(isinstance(number, (int, float)) for number in numbers):
        return [*texts, *numbers]
    raise ValueError(line)


def late_by(ticket: Ticket, looked: Decision) -> float:
    """Seconds by which a ticket comes after its slot, at the time of a look at the store; below 0 before it."""
    return looked.now_us / SECOND_US - ticket.ready_at


def on_time(ticket: Ticket, looked: Decision) -> Decision:
    """The decision for a ticket that is not late."""
    delay = max(-late_by(ticket, looked), 0.0)
    granted = ticket.lines[0].cost
    return replace(
        looked, allowed=True, granted=granted, delay=delay, retry_after=0.0, ready_at=ticket.ready_at, before=None
    )
