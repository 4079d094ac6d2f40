"""Plans: what a request is charged under the rules that match it.

A plan is made once for each set of rules, and knows what does not depend on the request: the prefixes of buckets, which
rules share a key, and what else they ask for. A request only fills in its keys, and nothing is cached for a client.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from starlette.types import Scope

from ..buckets import bucket_prefix, tag_of
from ..decision import Charge, OnError, Take, planned_charge, planned_take
from ..quotas import MAX_CHARGES, Quota
from .functions.connection_functions import Results, connection_of
from .penalties.block_checks import BlockCheck, block_check
from .rules import AppliedRule, CompiledRule


@dataclass(slots=True, eq=False)
class SettleRule:
    """A rule with ``settle``, and the charges that it settles: their places in the take of that number."""

    rule: CompiledRule
    take_number: int
    places: list[int]


@dataclass(slots=True, eq=False)
class PlannedTakes:
    """Everything that one request takes."""

    takes: tuple[Take, ...]
    is_enforced: bool = True
    """Whether the first take is enforced; all others belong to shadow rules."""
    checks_blocks: bool = False
    """Whether the enforced take has charges that check for blocks."""
    settle_rules: Sequence[SettleRule] = ()
    messages: Sequence[AppliedRule] = ()
    """The rules with ``messages``, each with the key that it has found."""
    max_delays: Sequence[float] = ()
    """The seconds that a request may wait for each charge of the enforced take; empty if it never waits."""
    parts: Sequence[Take] = ()
    """The takes that the enforced one is split into, if it is too much for one take."""


class Plan:
    """What a request is charged under these rules."""

    def __init__(self, rules: Sequence[CompiledRule]) -> None:
        self.rules = tuple(rules)
        self.is_constant = all(rule.is_constant for rule in rules)
        """Whether only keys depend on the request, and are read from its scope, so that nothing is awaited."""
        self.may_wait = any(rule.max_delay > 0.0 and not rule.shadow for rule in rules)
        """Whether a request may wait for its slot instead of being refused."""
        self._keys = list(dict.fromkeys([rule.key for rule in rules]))
        self._numbered = [(rule, self._keys.index(rule.key), _prefixed(rule)) for rule in rules]
        self._is_plain = not any(
            rule.shadow or rule.penalty or rule.settle or rule.messages or rule.max_delay for rule in rules
        )
        """Whether it charges one enforced take, and nothing else."""
        self._on_error = strictest(rules)

    def evaluate_constant(self, scope: Scope) -> PlannedTakes | None:
        """Everything that the request with this scope takes, under a constant plan; ``None`` for nothing."""
        tags: list[tuple[str, str] | None] = []
        for number, key_function in enumerate(self._keys):
            try:
                key = key_function.of(scope)  # type: ignore[attr-defined]  # it is a ScopeKey
            except Exception:  # noqa: BLE001  # an object of the app's may do anything
                key = self._first_rule(number).key_of(scope)
            tags.append(None if key is None else (key, tag_of(key)))
        adding = _Adding()
        for rule, number, prefixed in self._numbered:
            found = tags[number]
            if not rule.key_watch.is_over:
                rule.watch(None if found is None else found[0])
            if found is not None:
                adding.add(rule, *found, prefixed, rule.cost)  # type: ignore[arg-type]  # its cost is constant
        return adding.planned(self._on_error if self._is_plain and None not in tags else None, self._is_plain)

    async def evaluate(self, scope: Scope) -> PlannedTakes | None:
        """Everything that the request with this scope takes, under any plan. May raise ``LimitUnavailable``."""
        if self.is_constant:
            return self.evaluate_constant(scope)
        connection, results, adding = connection_of(scope), Results(), _Adding()
        for rule, _, prefixed in self._numbered:
            try:
                applied = await rule.evaluate(connection, results)
            except Exception as error:  # noqa: BLE001  # a function of the user's, which may raise whatever it likes
                rule.fail(error)
                continue
            if applied is not None:
                quotas = prefixed if not callable(rule.quota) else _with_prefixes(rule.name, applied.quotas)
                adding.add(rule, applied.key, tag_of(applied.key), quotas if applied.quotas else (), applied.cost)
        return adding.planned(None, self._is_plain)

    def _first_rule(self, number: int) -> CompiledRule:
        """The first rule with the key function of this number."""
        return next(rule for rule, own, _ in self._numbered if own == number)


Prefixed = Sequence[tuple[Quota, str]]
"""Quotas, each with the start of its buckets' texts."""


class _Adding:
    """Collects the charges of one request, rule by rule."""

    __slots__ = ("_applied", "_enforced", "_shadows", "_weight")

    def __init__(self) -> None:
        self._enforced: dict[str, tuple[Charge, CompiledRule]] = {}
        self._shadows: list[tuple[CompiledRule, list[Charge]]] = []
        self._applied: list[AppliedRule] = []
        self._weight = 0

    def add(self, rule: CompiledRule, key: str, tag: str, quotas: Prefixed, cost: float) -> None:
        """Add a rule that applies under a key; ``tag`` is that of its buckets."""
        name, enforced, charges = rule.name, self._enforced, []
        for quota, prefix in quotas:
            bucket = f"{prefix}{{{tag}}}"
            if rule.shadow:
                charges.append(planned_charge(quota, key, cost, name, bucket))
            elif bucket not in enforced:
                enforced[bucket] = planned_charge(quota, key, cost, name, bucket), rule
                self._weight += quota.weight
            elif rule.settle and not enforced[bucket][1].settle:  # which then settles the charge of both
                enforced[bucket] = enforced[bucket][0], rule
        if charges:
            self._shadows.append((rule, charges))
        if rule.messages or (rule.penalty and quotas):
            self._applied.append(AppliedRule(rule, key, tuple([quota for quota, _ in quotas])))

    def planned(self, on_error: OnError | None, is_plain: bool) -> PlannedTakes | None:
        """Everything that was added; ``None`` for nothing."""
        enforced = self._enforced
        charges = [charge for charge, _ in enforced.values()]
        if is_plain and self._weight <= MAX_CHARGES:
            if not charges:
                return None
            on_error = on_error or strictest([rule for _, rule in enforced.values()])
            return PlannedTakes((planned_take(tuple(charges), on_error),))
        return self._with_extras(charges)

    def _with_extras(self, charges: list[Charge]) -> PlannedTakes | None:
        """One take for all rules that are enforced, and one for each shadow rule."""
        planned = PlannedTakes((), is_enforced=bool(charges))
        rules = [rule for _, rule in self._enforced.values()]
        takes: list[Take] = []
        settle_rules: list[SettleRule] = []
        if charges:
            checks = self._block_checks()
            planned.checks_blocks = bool(checks)
            on_error = strictest(rules)
            takes.append(planned_take((*charges, *checks), on_error))
            if self._weight + len(checks) > MAX_CHARGES:
                planned.parts = [Take(part, on_error=on_error) for part in in_parts([*charges, *checks])]
            elif any(rule.max_delay for rule in rules):
                planned.max_delays = [*[rule.max_delay for rule in rules], *[0.0] * len(checks)]
            settle_rules += _settle_rules(rules, 0)
        counted: set[str] = set()
        for rule, shadowed in self._shadows:
            own = [charge for charge in shadowed if charge.bucket not in counted]
            if own:
                counted.update([charge.bucket for charge in own])
                settle_rules += _settle_rules([rule] * len(own), len(takes))
                takes.append(Take(tuple(own), rule.max_delay, on_error=rule.on_error))
        planned.takes, planned.settle_rules = tuple(takes), settle_rules
        planned.messages = [each for each in self._applied if each.rule.messages]
        return planned if takes or planned.messages else None

    def _block_checks(self) -> list[BlockCheck]:
        """The checks for blocks of the rules with a penalty, each bucket once."""
        checks = [
            block_check(each.rule.name, each.key, each.rule.penalty)
            for each in self._applied
            if each.rule.penalty and each.quotas and not each.rule.shadow
        ]
        return list({check.bucket: check for check in reversed(checks)}.values())[::-1]


def _prefixed(rule: CompiledRule) -> Prefixed:
    return () if callable(rule.quota) else _with_prefixes(rule.name, rule.quota)


def _with_prefixes(name: str, quotas: Iterable[Quota]) -> Prefixed:
    return [(quota, bucket_prefix(name, quota.name, quota.kind)) for quota in quotas]


def in_parts(charges: Iterable[Charge]) -> list[tuple[Charge, ...]]:
    """The charges split over several takes, in order, each with no more than one take may charge.

    The check for a block is in each take that charges its rule and key, as the last charge.
    """
    listed = tuple(charges)
    checks = {(each.name, each.key): each for each in listed if isinstance(each, BlockCheck)}
    parts: list[list[Charge]] = [[]]
    weight = 0
    for charge in [each for each in listed if not isinstance(each, BlockCheck)]:
        check = checks.get((charge.name, charge.key))
        added = [charge] if check is None else [charge, check]
        own = sum([each.quota.weight for each in added])
        weight += own
        if weight > MAX_CHARGES:
            parts.append([])
            weight = own
        parts[-1].extend(added)
    in_order = [sorted(part, key=lambda each: isinstance(each, BlockCheck)) for part in parts if part]
    return [tuple({charge.bucket: charge for charge in part}.values()) for part in in_order]


def _settle_rules(rules: Sequence[CompiledRule], take_number: int) -> list[SettleRule]:
    """The rules with ``settle`` among the rules of each charge of a take."""
    settling = [rule for rule in dict.fromkeys(rules) if rule.settle is not None]
    return [
        SettleRule(rule, take_number, [place for place, other in enumerate(rules) if other is rule])
        for rule in settling
    ]


def strictest(rules: Iterable[CompiledRule]) -> OnError | None:
    """What to do without the store if the rules of a request differ."""
    return max((rule.on_error for rule in rules), key=_STRICTNESS.index, default=None)


_STRICTNESS: tuple[OnError | None, ...] = ("allow", None, "local", "deny")
"""From the mildest to the strictest; ``None`` leaves it to the store."""
