"""Tickets: slots that one process books and another one uses, once, as a text that goes with a job.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from secrets import randbits
from typing import Any

from ..algorithms import Booked
from ..buckets import DEFAULT_NAME, as_bytes, digest
from ..decision import Charge, Decision, Take, checked_operation
from ..quotas import MAX_CHARGES, SECOND_US, FixedWindow, Quota, RollingWindow, TokenBucket
from ..stores import Settled, Settlement
from ..stores.base import SETTLED, booked_of
from ..waiting.waiter import PaceTimeout
from .live_quotas import LiveQuotas, checked_decision

# The version of the text, which is its first item.
FORMAT = 6

KINDS: dict[str, type[Any]] = {kind.__name__: kind for kind in (TokenBucket, FixedWindow, RollingWindow)}

# Characters of the longest text of a ticket.
LONGEST_TEXT = 8192

# The latest Unix time of a ticket: in the year 2286.
LATEST = 1e10

# Above every number of a ticket: its id, times in microseconds, and units.
LARGEST = 2.0**64

# Seconds after its slot for which a ticket can be redeemed, and cancelled.
REDEEMABLE_FOR = 7 * 86_400.0


@dataclass(frozen=True, slots=True)
class Ticket:
    """A slot of the limiter ``name``: ``ready_at`` in Unix time, ``delay`` in seconds after it was booked.

    ``str(ticket)`` is a text of letters, digits, ``-`` and ``_``, and ``Ticket.parse`` reads it. Anyone who can write
    tickets can run jobs at any time: keep them where your jobs are. ``charges`` are those that it was booked under, and
    ``booked`` where the first of them are in their queues; the others, which are shared, are taken when it is redeemed.
    ``degraded`` means that it was booked without the store, and ``operation`` under which operation.
    """

    name: str
    ready_at: float
    delay: float
    id: int
    charges: tuple[Charge, ...]
    booked: tuple[Booked, ...]
    degraded: bool = False
    operation: str | None = None

    @classmethod
    def of(cls, decision: Decision, shared: Sequence[Charge] = ()) -> Ticket:
        """The ticket of a decision that has booked a slot; ``PaceTimeout`` if it has not.

        ``shared`` are charges that are taken when it is redeemed. Raises ``ValueError`` for charges that are too many,
        or whose keys are too long, for a ticket, and for anything but a decision.
        """
        if not checked_decision(decision, "Ticket.of(await limiter.pace(key))").allowed:
            raise PaceTimeout("no slot was booked, so there is no ticket for it", decision)
        booked = [booked_of(decision, *pair) for pair in zip(decision.charges, decision.stored)]
        if decision.id >= SETTLED:  # its place is not known any more, so nothing comes back
            booked = [each._replace(at=0.0, slot=0.0) for each in booked]
        name, identity = decision.charges[0].name or DEFAULT_NAME, decision.id or randbits(52)
        slot = name, decision.ready_at, decision.delay, identity
        ticket = cls(*slot, (*decision.charges, *shared), tuple(booked), decision.degraded, decision.take.operation)
        length = len(str(ticket))
        if length > LONGEST_TEXT:
            raise ValueError(f"a ticket has at most {LONGEST_TEXT} characters, not {length}: use shorter keys")
        return ticket

    @classmethod
    def parse(cls, text: str) -> Ticket:
        """The ticket that a text stands for; ``ValueError`` if it is not the text of a ticket."""
        try:
            if len(text) <= LONGEST_TEXT:
                return _ticket(json.loads(base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True)))
        except (ValueError, TypeError, AttributeError, LookupError, RecursionError, OverflowError):
            pass
        raise ValueError(f"{text!r:.200} is not a ticket: pass on str(await limiter.reserve(key))")

    def __str__(self) -> str:
        charges = [[type(each.quota).__name__, _arguments(each.quota), each.key, each.cost] for each in self.charges]
        places = [[each.at, each.slot, each.place] for each in self.booked]
        slot = [self.name, self.ready_at, self.delay, self.id]
        packed = json.dumps([FORMAT, *slot, charges, places, self.degraded, self.operation], separators=(",", ":"))
        return base64.urlsafe_b64encode(packed.encode()).decode().rstrip("=")

    def charges_under(self, live: LiveQuotas, name: str) -> tuple[Charge, ...]:
        """Its charges under a limiter's quotas; ``ValueError`` if it is not a ticket of that limiter.

        It may name the program's own quotas, too: an override may have come or gone since it was booked.
        """
        by_name = {quota.name: quota for quota in (*live.own, *live.quotas)}
        names = [charge.quota.name for charge in self.charges]
        if self.name != name or not by_name.keys() >= set(names):
            other = f"{name!r} with {list(by_name)}"
            raise ValueError(f"a ticket of the limiter {self.name!r} for {names} is not one of {other}")
        return tuple([Charge(by_name[each.quota.name], each.key, each.cost, name) for each in self.charges])

    def claims(self) -> list[Settlement]:
        """The settlements that use the ticket and leave its charges; the first one tells whether this is the first use.

        The others keep copies of the decision from giving anything back.
        """
        return self._settlements([each.cost for each in self.booked], randbits(52) + 1)

    def cancellation(self, *, is_marked: bool) -> list[Settlement]:
        """The settlements that give the slot back, if the first one is the first use.

        The slot belongs to the quota under which it was booked, whatever has changed since. A ticket of an outage
        ``is_marked`` as void in the store, which was not charged with it.
        """
        return self._settlements([0.0] * len(self.booked), randbits(52) + 1 if is_marked else 0, self.operation)

    def _settlements(self, actual: Sequence[float], token: int, undone: str | None = None) -> list[Settlement]:
        own, until_us = self.charges[: len(self.booked)], float(round((self.ready_at + REDEEMABLE_FOR) * SECOND_US))
        take = None if undone is None else Take(own, operation=undone)
        return [
            Settlement(charge, booked, units, self.id, self.degraded, take, until_us, token)
            for charge, booked, units in zip(own, self.booked, actual)
        ]

    def decision(self, settled: Sequence[Settled]) -> Decision:
        """The decision of a caller that redeems the ticket in time; all of its tickets are one."""
        take, now_us = Take(self.charges[: len(self.booked)], math.inf), settled[0].now_us
        wait_us = max(float(round(self.ready_at * SECOND_US)) - now_us, 0.0)
        identity = SETTLED | int(digest(as_bytes(f"after {self.id}"))[:13], 16)
        return Decision(take, True, wait_us, [each.state for each in settled], now_us, identity, degraded=self.degraded)


def _arguments(quota: Quota) -> list[Any]:
    return [getattr(quota, each.name) for each in fields(quota) if each.init]


def _ticket(items: Any) -> Ticket:
    """The ticket of these items, if they are those of one; else an error that ``parse`` expects."""
    version, name, ready_at, delay, identity, charge_items, places, degraded, operation = items
    if version != FORMAT or not (isinstance(name, str) and name) or type(degraded) is not bool:
        raise ValueError(version)
    charges = [Charge(KINDS[kind](*arguments), key, cost, name) for kind, arguments, key, cost in charge_items]
    if not 0 < len(places) <= len(charges) == len({each.quota.name for each in charges}) <= MAX_CHARGES:
        raise ValueError(places)
    booked = [Booked._make([*map(_number, place), charge.cost]) for charge, place in zip(charges, places)]
    times, operation = (_number(ready_at, LATEST), _number(delay, LATEST)), checked_operation(operation)
    return Ticket(name, *times, int(_number(identity)), tuple(charges), tuple(booked), degraded, operation)


def _number(value: Any, most: float = LARGEST) -> Any:
    """``value``, if it is a number from 0 to ``most``; ``ValueError`` otherwise."""
    if type(value) in (int, float) and 0 <= value <= most:  # false for NaN, too
        return value
    raise ValueError(value)
