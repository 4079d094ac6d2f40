"""Decides requests of a replay under a plan, without stores, takes and decisions if possible.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from ...algorithms import State, taken_now
from ...inbound.penalties.block_checks import block_check
from ...inbound.plan import Plan
from ...inbound.rules import CompiledRule
from ...quotas import Quota
from ..logs import LoggedRequest
from .counts import RuleCounts
from .replayed_buckets import ReplayedBuckets, States
from .replayed_limits import LOGGED_KEY, scope_of

ALLOWED: Final = 0
REFUSED: Final = 1
UNLIMITED: Final = 2
"""Outcome: no rule of the plan has a key for the request."""
UNDECIDED: Final = 3
"""Outcome: nothing was taken or counted, because a delay, a penalty or a function is involved."""

Decide: TypeAlias = Callable[["str | None", float, float, LoggedRequest], int]
"""Returns one of these outcomes for a request, from its key, its time in microseconds, its cost, and the request
itself.

A cost of 1 stands for the cost of each rule.
"""

Keys: TypeAlias = Sequence[str]
Priced: TypeAlias = tuple[Quota, float, States, int, bool]
"""A charge: the quota, its own cost, its states, the number of its key, and whether it always has that cost."""


def decider(plan: Plan, buckets: ReplayedBuckets, counts: dict[str, RuleCounts]) -> Decide:
    """A function that decides requests under a plan, and counts what it decides."""
    rules = [rule for rule in plan.rules if rule.quota]
    if not all(rule.is_constant and not (rule.shadow and rule.max_delay) for rule in rules):
        return _undecided
    if not rules:
        return _unlimited
    keys = list(dict.fromkeys([rule.key for rule in rules]))
    enforced = _group([rule for rule in rules if not rule.shadow], keys, buckets, counts)
    shadows = [_group([rule], keys, buckets, counts) for rule in rules if rule.shadow]
    if enforced.may_repeat:
        return _undecided
    if not shadows and keys == [LOGGED_KEY]:
        return _alone(enforced) if len(enforced.charges) == 1 else _of_one_key(enforced)
    return _of_any_keys(rules, keys, enforced, shadows)


@dataclass(slots=True)
class _Group:
    """Charges that are taken together or not at all, and the rules that they are counted for."""

    charges: list[Priced]
    counted: list[tuple[RuleCounts, int, tuple[int, ...]]]
    """The counts of a rule, the number of its key, and the places of its charges."""
    needs_more: bool
    """Whether a refusal has consequences: the request may wait, or is punished."""
    may_repeat: bool
    """Whether two charges are one if two keys are equal."""

    def decide(self, keys: Keys, now: float, cost: float) -> int:
        """Take and count, unless a refusal has consequences."""
        after: list[State | None] = []
        for quota, own, states, number, is_fixed in self.charges:
            units = own if cost == 1 or is_fixed else cost
            after.append(taken_now(quota, states.get(keys[number]), now, units))
        is_refused = None in after
        if is_refused and self.needs_more:
            return UNDECIDED
        if not is_refused:
            for (_, _, states, number, _), state in zip(self.charges, after):
                states[keys[number]] = state  # type: ignore[assignment]  # none of them is None
        for counts, number, places in self.counted:
            counts.add(keys[number], now, is_refused and None in [after[place] for place in places])
        return REFUSED if is_refused else ALLOWED


def _group(
    rules: Sequence[CompiledRule], keys: Sequence[object], buckets: ReplayedBuckets, counts: dict[str, RuleCounts]
) -> _Group:
    """The charges of rules together, with each bucket once."""
    charges: dict[tuple[int, int], Priced] = {}
    places: dict[str, list[int]] = {}
    numbers: dict[str, int] = {}
    for rule in rules:
        numbers[rule.name] = number = keys.index(rule.key)
        for quota in rule.quota:  # type: ignore[union-attr]  # it is constant
            states = buckets.states(rule.name, quota)
            if (id(states), number) not in charges:
                places.setdefault(rule.name, []).append(len(charges))
                charges[id(states), number] = quota, rule.cost, states, number, False  # type: ignore[assignment]
    for rule in rules:
        if rule.penalty:
            check, number = block_check(rule.name, ""), keys.index(rule.key)
            states = buckets.states(rule.name, check.quota)
            charges.setdefault((id(states), number), (check.quota, check.cost, states, number, True))
    return _Group(
        list(charges.values()),
        [(counts[name], numbers[name], tuple(of_name)) for name, of_name in places.items()],
        any(rule.penalty or rule.max_delay for rule in rules),
        len({of_bucket for of_bucket, _ in charges}) < len(charges),
    )


def _undecided(key: str | None, now: float, cost: float, request: LoggedRequest) -> int:
    return UNDECIDED


def _unlimited(key: str | None, now: float, cost: float, request: LoggedRequest) -> int:
    return UNLIMITED


def _alone(group: _Group) -> Decide:
    """``_of_one_key`` for a single charge, which is the usual case."""
    ((quota, own, states, _, _),), ((counts, _, _),) = group.charges, group.counted
    state_of, count = states.get, counts.add

    def decide(key: str | None, now: float, cost: float, request: LoggedRequest) -> int:
        if key is None:
            return UNLIMITED
        after = taken_now(quota, state_of(key), now, own if cost == 1 else cost)
        if after is None:
            if group.needs_more:
                return UNDECIDED
            count(key, now, True)
            return REFUSED
        states[key] = after
        count(key, now, False)
        return ALLOWED

    return decide


def _of_one_key(group: _Group) -> Decide:
    def decide(key: str | None, now: float, cost: float, request: LoggedRequest) -> int:
        return UNLIMITED if key is None else group.decide((key,), now, cost)

    return decide


def _of_any_keys(
    rules: Sequence[CompiledRule], keys: Sequence[object], enforced: _Group, shadows: Sequence[_Group]
) -> Decide:
    """The decisions under rules of several keys, and of shadow rules, which are decided one by one."""
    key_functions = [next(rule.key_of for rule in rules if rule.key is key) for key in keys]

    def decide(key: str | None, now: float, cost: float, request: LoggedRequest) -> int:
        scope = scope_of(request)
        own_keys = [key_of(scope) for key_of in key_functions]
        present = [each for each in own_keys if each is not None]
        if len(present) < len(own_keys):
            return UNDECIDED if present else UNLIMITED
        outcome = enforced.decide(present, now, cost) if enforced.charges else ALLOWED
        if outcome != UNDECIDED:
            for shadow in shadows:
                shadow.decide(present, now, cost)
        return outcome

    return decide
