"""Actions over several hash slots of a cluster: how to split them by slot, and how to join the decisions.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from redis.crc import key_slot

from ....algorithms import foresee, settlement_of
from ....decision import Charge, Decision, QuotaState, Redemption, SettledCharge, Settlement, Take
from ..script_actions import Action, Peek, Reset, charges_of


@dataclass(slots=True)
class Part:
    """The part of an action that belongs to one slot: the charges at ``places`` of the whole."""

    slot: int
    places: list[int]
    action: Any


def slot_of(charge: Charge) -> int:
    """The slot of a charge's bucket, which depends only on its key, the hash tag."""
    slot: int = key_slot(charge.bucket.encode())
    return slot


def split(action: Action) -> list[Part]:
    """An action as one part for each slot that its charges are in."""
    places: dict[int, list[int]] = {}
    for place, charge in enumerate(charges_of(action)):
        places.setdefault(slot_of(charge), []).append(place)
    if len(places) == 1:
        return [Part(slot, all_places, action) for slot, all_places in places.items()]
    return [Part(slot, own, _restricted(action, own)) for slot, own in places.items()]


def _restricted(action: Action, places: Sequence[int]) -> Action:
    """The same action for the charges at ``places`` only."""
    if isinstance(action, Settlement):
        settled = tuple([action.settled_charges[place] for place in places])
        undone = None if action.undone is None else _with_charges(action.undone, places)
        return replace(action, settled_charges=settled, undone=undone)
    if isinstance(action, Redemption):
        return replace(action, take=_with_charges(action.take, places))
    if isinstance(action, Peek):
        return Peek(_with_charges(action.take, places))
    if isinstance(action, Reset):
        return Reset([action.charges[place] for place in places])
    if isinstance(action, Take):
        return _with_charges(action, places)
    return action  # a charge or a repayment: these are in one slot


def _with_charges(take: Take, places: Sequence[int]) -> Take:
    return replace(take, charges=tuple([take.charges[place] for place in places]))


def joined(take: Take, parts: Sequence[Part], decisions: Sequence[Decision]) -> Decision:
    """The decision on ``take`` that follows from the decisions on its parts: allowed if all parts are.

    ``retry_after`` is the longest of the parts. If the take is refused, granted parts are assumed to be given back. The
    decision repeats an earlier one if any part does: what others have booked must not be given back with the rest.
    """
    allowed = all(decision.allowed for decision in decisions)
    effective = decisions if allowed else [_undone(decision) for decision in decisions]
    order = [(place, decision, at) for decision, part in zip(effective, parts) for at, place in enumerate(part.places)]
    order.sort(key=lambda entry: entry[0])
    states = tuple([decision.states[at] for _, decision, at in order])
    binding = _binding(states, allowed)
    before = [None if decision.before is None else decision.before[at] for _, decision, at in order]
    return Decision(
        allowed=allowed,
        granted=min(decision.granted for decision in decisions),
        delay=max(decision.delay for decision in decisions) if allowed else 0.0,
        retry_after=max(decision.retry_after for decision in decisions),
        remaining=binding.remaining,
        reset_after=binding.reset_after,
        ready_at=max(decision.ready_at for decision in decisions),
        quota=binding.quota,
        states=states,
        take=take,
        before=None if None in before else before,
        now_us=min(decision.now_us for decision in decisions),
        times_us=tuple([decision.now_us for _, decision, at in order]),
        birth=decisions[0].birth,
        repeated_us=None if take.operation is None else _repeated_us(decisions),
        booked=None if take.operation is None else _booked(decisions),
    )


def _repeated_us(decisions: Sequence[Decision]) -> float | None:
    """The time at which the last of these decisions was repeated; ``None`` if none was."""
    return max([each.repeated_us for each in decisions if each.repeated_us is not None], default=None)


def _booked(decisions: Sequence[Decision]) -> tuple[SettledCharge, ...] | None:
    """Where all parts are booked, if the store was debited for any of them; ``None`` also where that is not known."""
    if all(decision.booked is None for decision in decisions):
        return None
    booked: list[SettledCharge] = []
    for decision in decisions:
        costs = [] if decision.take is None else [charge.cost for charge in decision.take.charges]
        where = settlement_of(decision, costs)
        if where is None:
            return None
        booked += where.settled_charges if decision.booked is None else decision.booked
    return tuple(booked)


def _undone(decision: Decision) -> Decision:
    """A granted part as it was before, for a take that another part refuses."""
    if not decision.allowed or decision.take is None or decision.before is None:
        return decision
    return foresee(decision.take, decision.before, decision.now_us)


def _binding(states: Sequence[QuotaState], allowed: bool) -> QuotaState:
    """The state of the binding quota; see ``Decision.quota``."""
    return min(states, key=attrgetter("remaining")) if allowed else max(states, key=attrgetter("retry_after"))
