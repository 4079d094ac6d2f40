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
from typing import Any

from ..algorithms import Booked
from ..buckets import DEFAULT_NAME, as_bytes, digest
from ..decision import Charge, Decision, Settled, Settlement, Take, booked_charges
from ..quotas import MAX_CHARGES, SECOND_US, FixedWindow, Quota, RollingWindow, TokenBucket
from ..waiting import PaceTimeout
from .charges import checked_operation

FORMAT = 6
"""The version of the text, which is its first item."""

KINDS: dict[str, type[Any]] = {"bucket": TokenBucket, "fixed": FixedWindow, "rolling": RollingWindow}

LONGEST_TEXT = 8192
"""Characters of the longest text of a ticket."""

LATEST = 1e10
"""The latest Unix time of a ticket: in the year 2286."""

LARGEST = 2.0**64
"""Above every number of a ticket: its id, times in microseconds, and units."""

REDEEMABLE_FOR = 7 * 86_400.0
"""Seconds after its slot for which a ticket can be redeemed, and cancelled."""

REDEEMED = 1 << 60
"""The ids of decisions of redeemed tickets begin here, above all others: nothing of them can be given back."""


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
        or whose keys are too long, for a ticket.
        """
        if not decision.allowed:
            raise PaceTimeout("no slot was booked, so there is no ticket for it", decision)
        ticket = cls(
            decision.charges[0].name or DEFAULT_NAME,
            decision.ready_at,
            decision.delay,
            decision.id or getrandbits(52),
            (*decision.charges, *shared),
            tuple(booked_charges(decision)),
            decision.degraded,
            decision.take.operation,
        )
        length = len(str(ticket))
        if length > LONGEST_TEXT:
            raise ValueError(f"a ticket has at most {LONGEST_TEXT} characters, not {length}: use shorter keys")
        return ticket

    @classmethod
    def parse(cls, text: str) -> Ticket:
        """The ticket that a text stands for; ``ValueError`` if it is not the text of a ticket."""
        try:
            if len(text) <= LONGEST_TEXT:
                padded = text.encode("ascii") + b"=" * (-len(text) % 4)
                return _ticket(*json.loads(base64.b64decode(padded, b"-_", validate=True)))
        except (ValueError, TypeError, AttributeError, RecursionError, OverflowError):
            pass
        raise ValueError(f"{text!r:.200} is not a ticket: pass on str(await limiter.reserve(key))")

    def __str__(self) -> str:
        charges = [[*_quota_items(charge.quota), charge.key, charge.cost] for charge in self.charges]
        booked = [[each.at, each.slot, each.place] for each in self.booked]
        times = self.ready_at, self.delay
        items = [FORMAT, self.name, *times, self.id, charges, booked, self.degraded, self.operation]
        packed = json.dumps(items, separators=(",", ":"))
        return base64.urlsafe_b64encode(packed.encode()).decode().rstrip("=")

    def charges_under(self, quotas: Sequence[Quota], name: str) -> tuple[Charge, ...]:
        """Its charges under a limiter's quotas; ``ValueError`` if it is not a ticket of that limiter."""
        by_name = {quota.name: quota for quota in quotas}
        names = [charge.quota.name for charge in self.charges]
        if self.name != name or not by_name.keys() >= set(names):
            raise ValueError(
                f"a ticket of the limiter {self.name!r} for {names} is not one of {name!r} with {list(by_name)}"
            )
        return tuple([Charge(by_name[each.quota.name], each.key, each.cost, name) for each in self.charges])

    def claims(self) -> list[Settlement]:
        """The settlements that use the ticket: the charges stay, and the first one tells whether it is the first use."""
        return self._settlements(getrandbits(52) + 1)

    def cancellation(self, *, of_outage: bool = False) -> list[Settlement]:
        """The settlements that give the slot back: the others only follow if the first one is the first use.

        The slot belongs to the quota under which it was booked, whatever has changed since. With ``of_outage``, the
        store must remember that the ticket is void, although it was not charged.
        """
        return self._settlements(getrandbits(52) + 1 if of_outage else 0, 0.0, self.operation)

    def _settlements(
        self, token: int, actual: float | None = None, undone: str | None = None
    ) -> list[Settlement]:
        take = None if undone is None else Take(self.charges[: len(self.booked)], operation=undone)
        until_us = float(round((self.ready_at + REDEEMABLE_FOR) * SECOND_US))
        return [
            Settlement(
                charge, each, each.cost if actual is None else actual, self.id, self.degraded, take, until_us, token
            )
            for charge, each in zip(self.charges, self.booked)
        ]

    def decision(self, settled: Sequence[Settled]) -> Decision:
        """The decision of a caller that redeems the ticket in time; all of its tickets are one."""
        take, now_us = Take(self.charges[: len(self.booked)], math.inf), settled[0].now_us
        wait_us = max(float(round(self.ready_at * SECOND_US)) - now_us, 0.0)
        identity = REDEEMED | int(digest(as_bytes(f"after {self.id}"))[:13], 16)
        return Decision(
            take, True, wait_us, [each.state for each in settled], now_us, identity, degraded=self.degraded
        )


def _quota_items(quota: Quota) -> list[Any]:
    """The kind of a quota, and its arguments."""
    kind = next(kind for kind, made in KINDS.items() if made is type(quota))
    return [kind, [getattr(quota, each.name) for each in fields(quota) if each.init]]


def _ticket(
    version: Any, name: Any, ready_at: Any, delay: Any, identity: Any, items: Any, places: Any, degraded: Any, operation: Any
) -> Ticket:
    """The ticket of these items; ``ValueError``, ``TypeError`` or ``AttributeError`` unless they are those of one."""
    if version != FORMAT or not (isinstance(name, str) and name) or type(degraded) is not bool:
        raise ValueError(version)
    charges = [Charge(KINDS[kind](*arguments), key, cost, name) for kind, arguments, key, cost in items]
    names = {charge.quota.name for charge in charges}
    if not 0 < len(places) <= len(charges) == len(names) <= MAX_CHARGES:
        raise ValueError(items)
    booked = [
        Booked(_number(at), _number(slot), _number(place), charge.cost)
        for charge, (at, slot, place) in zip(charges, places)
    ]
    times = _number(ready_at, LATEST), _number(delay, LATEST)
    return Ticket(
        name, *times, int(_number(identity)), tuple(charges), tuple(booked), degraded, checked_operation(operation)
    )


def _number(value: Any, most: float = LARGEST) -> Any:
    """``value``, if it is a number from 0 to ``most``; ``ValueError`` otherwise."""
    if type(value) in (int, float) and 0 <= value <= most:  # false for NaN, too
        return value
    raise ValueError(value)
