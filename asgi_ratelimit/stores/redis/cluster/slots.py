"""Takes over several hash slots of a cluster: how they are split by slot, and how the parts' decisions are joined.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from operator import attrgetter
from typing import Any, TypeAlias

from redis.crc import key_slot

from ....algorithms import foresee
from ....buckets import redis_key
from ....decision import Charge, Decision, QuotaState, Settlement, Take
from .. import script as _wire

SLOTS = 16_384

Owners: TypeAlias = dict[int, tuple[str, int]]
"""The address of the primary of each slot."""


@dataclass(slots=True)
class Part:
    """What of an action belongs to one slot: the charges at these ``places`` of the whole."""

    slot: int
    places: list[int]
    action: Any


def slot_of(charge: Charge) -> int:
    """The slot of a charge's bucket, which depends on its key alone."""
    return _slot(charge.bucket[2])


@lru_cache(maxsize=16_384)
def _slot(key: str) -> int:
    slot: int = key_slot(redis_key(b"", "", "", key))
    return slot


def split(action: _wire.Action) -> list[Part]:
    """An action as one for each slot that its charges are in."""
    places: dict[int, list[int]] = {}
    for place, charge in enumerate(action.charges):
        places.setdefault(slot_of(charge), []).append(place)
    if len(places) == 1:
        return [Part(slot, all_places, action) for slot, all_places in places.items()]
    return [Part(slot, own, _narrowed(action, own)) for slot, own in places.items()]


def _narrowed(action: _wire.Action, places: Sequence[int]) -> _wire.Action:
    """The same action over the charges at some places only."""
    if isinstance(action, Settlement):
        return replace(action, lines=tuple([action.lines[place] for place in places]))
    if isinstance(action, _wire.Look):
        return _wire.Look(_with_charges(action.take, places))
    if isinstance(action, _wire.Reset):
        return _wire.Reset([action.charges[place] for place in places])
    return _with_charges(action, places)


def _with_charges(take: Take, places: Sequence[int]) -> Take:
    return replace(take, charges=tuple([take.charges[place] for place in places]))


def joined(take: Take, parts: Sequence[Part], decisions: Sequence[Decision]) -> Decision:
    """The decision on ``take`` that those on its parts come to: allowed where all are, at the latest of their times.

    Where it is not, parts that were granted are taken to be given back.
    """
    allowed = all(decision.allowed for decision in decisions)
    told = decisions if allowed else [_undone(decision) for decision in decisions]
    order = [(place, part, at) for part, places in zip(told, parts) for at, place in enumerate(places.places)]
    order.sort(key=lambda entry: entry[0])
    states = tuple([part.states[at] for _, part, at in order])
    binding = _binding(states, allowed)
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
        before=[(part.before or ())[at] for _, part, at in order],
        now_us=min(decision.now_us for decision in decisions),
        times_us=tuple([part.now_us for _, part, at in order]),
    )


def _undone(decision: Decision) -> Decision:
    """A granted part as it was before, for what others then refused."""
    if not decision.allowed or decision.take is None or decision.before is None:
        return decision
    return foresee(decision.take, decision.before, decision.now_us)


def _binding(states: Sequence[QuotaState], allowed: bool) -> QuotaState:
    """The state of the charge that decides: see ``Decision.quota``."""
    return min(states, key=attrgetter("remaining")) if allowed else max(states, key=attrgetter("retry_after"))


def together(decisions: Sequence[Decision]) -> bool:
    """Whether all booked at the same moment."""
    return len({decision.delay for decision in decisions}) == 1


def latest_us(decisions: Sequence[Decision], floor_us: float) -> float:
    """The longest wait of these decisions in microseconds, ``floor_us`` at least."""
    return max([floor_us, *(float(round(decision.delay * 1_000_000)) for decision in decisions)])


def no_sooner(take: Take, soonest_us: float, max_wait: float) -> Take:
    """``take`` with another ``max_wait``, to be booked after a wait of ``soonest_us``, or later if need be."""
    later = replace(take, max_wait=max_wait)
    later.soonest_us, later.only = soonest_us, None
    return later


def owners_in(reply: Any, host: str) -> Owners:
    """Who owns which slot, from the reply to ``CLUSTER SLOTS`` of the node at ``host``.

    A node that does not know its own host says nothing, and is the one that was asked.
    """
    owners: Owners = {}
    for first, last, primary, *_ in reply:
        named = primary[0].decode() if isinstance(primary[0], bytes) else primary[0]
        address = (named or host, int(primary[1]))
        owners.update(dict.fromkeys(range(int(first), int(last) + 1), address))
    return owners
