"""Plans: what a request is charged under the rules that match it.

A plan is made once for each set of rules, and knows what does not depend on the request: which rules share a key, and
the layout of the takes. A request only fills in its keys and costs, and nothing is cached for a client.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, TypeAlias

from starlette.types import Scope

from ..buckets import bucket_prefix, tag_of
from ..decision import Charge, OnError, Take
from ..quotas import MAX_CHARGES, Quota
from .functions import Results, connection_of
from .penalties import BLOCK, BlockCheck, block_check
from .rules import CompiledRule

MAX_LAYOUTS = 256
"""The most layouts that a plan stores: a function may return any quotas."""

Keys: TypeAlias = "Sequence[str | None]"

Planned: TypeAlias = "tuple[Layout, Keys, tuple[Take, ...]]"
"""Everything that one request takes: the layout, the keys that are numbered in it, and the takes."""


class Plan:
    """What a request is charged under these rules."""

    def __init__(self, rules: Sequence[CompiledRule]) -> None:
        self.rules = tuple(rules)
        self.is_constant = all(rule.is_constant for rule in rules)
        """Whether only keys depend on the request, and are read from its scope, so that nothing is awaited."""
        self.may_wait = any(rule.max_delay > 0.0 and not rule.shadow for rule in rules)
        """Whether a request may wait for its slot instead of being refused."""
        functions: list[Any] = list(dict.fromkeys([rule.key for rule in rules])) if self.is_constant else []
        self._numbers = tuple([functions.index(rule.key) if functions else at for at, rule in enumerate(rules)])
        """The number of each rule's key."""
        self._keys = [(function.of, rules[self._numbers.index(at)]) for at, function in enumerate(functions)]
        """The functions of a constant plan that read its keys, each with the first rule that has it."""
        self._watched = list(zip(rules, self._numbers)) if self.is_constant else []
        """The rules whose keys are still watched, and the numbers of these."""
        self._costs: list[Any] = [rule.cost for rule in rules]
        self._quotas: tuple[Any, ...] = tuple([rule.quota for rule in rules])
        self._layout_of = lru_cache(MAX_LAYOUTS)(partial(Layout, self.rules, self._numbers))
        self._layout = self._layout_of(self._quotas, tuple(range(len(functions)))) if self.is_constant else None
        """The layout if all rules have a key, and no two functions have found the same one."""
        self._may_repeat = len(functions) > 1 and len({rule.name for rule in rules}) < len(rules)
        """Whether two functions that find the same key charge the same bucket."""

    def evaluate_constant(self, scope: Scope) -> Planned | None:
        """Everything that the request with this scope takes, under a constant plan; ``None`` for nothing."""
        keys, tags = [], []
        for key_of, rule in self._keys:
            try:
                key = key_of(scope)
            except Exception:  # noqa: BLE001  # an object of the app's may do anything
                key = rule.key_of(scope)
            keys.append(key)
            tags.append("" if key is None else tag_of(key))
        if self._watched:
            self._watch(keys)
        layout = self._layout
        if layout is None or self._may_repeat or None in keys:
            quotas = [None if keys[number] is None else own for own, number in zip(self._quotas, self._numbers)]
            layout = self._layout_of(tuple(quotas), tuple([keys.index(key) for key in keys]))
        return layout.planned(keys, tags, self._costs)

    async def evaluate(self, scope: Scope) -> Planned | None:
        """Everything that the request with this scope takes, under any plan. May raise ``LimitUnavailable``."""
        if self.is_constant:
            return self.evaluate_constant(scope)
        connection, results = connection_of(scope), Results()
        keys, quotas, costs = [], [], []
        for rule in self.rules:
            key, own, cost = None, None, 1.0
            try:
                key, own, cost = await rule.evaluate(connection, results)
            except Exception as error:  # noqa: BLE001  # a function of the user's, which may raise whatever it likes
                rule.fail(error)
            keys.append(key)
            quotas.append(own)
            costs.append(cost)
        layout = self._layout_of(tuple(quotas), tuple([keys.index(key) for key in keys]))
        return layout.planned(keys, ["" if key is None else tag_of(key) for key in keys], costs)

    def _watch(self, keys: Keys) -> None:
        """Watch the key of each rule until it has come once, or until a warning; after that, it costs nothing."""
        for rule, number in self._watched:
            rule.watch(keys[number])
        self._watched = [(rule, number) for rule, number in self._watched if not rule.key_watch.is_over]


@dataclass(slots=True, eq=False)
class SettleRule:
    """A rule with ``settle``, and the charges that it settles: their places in the take of that number."""

    rule: CompiledRule
    take_number: int
    places: list[int]


_Charge: TypeAlias = tuple[Quota, str, str, int, int]
"""A charge without its key and cost: the quota, the start of the bucket's text, and the name; then the numbers of its
key and of its rule."""

_Take: TypeAlias = "tuple[list[_Charge], list[tuple[CompiledRule, int]], float, OnError | None]"
"""The charges of a take; the rules whose blocks it checks, with the numbers of their keys; how long it may wait."""

_Applied: TypeAlias = tuple[int, CompiledRule, int, tuple[Quota, ...]]
"""A rule that applies, with its number, the number of its key, and its quotas."""


_new = object.__new__


class Layout:
    """Everything about the takes of a request but its keys and costs.

    ``numbers`` are those of the rules' keys. ``quotas`` are those of each rule, or ``None`` for one that does not
    apply. ``same`` is, for each key, the number of the first one that equals it.
    """

    def __init__(
        self,
        rules: tuple[CompiledRule, ...],
        numbers: tuple[int, ...],
        quotas: tuple[tuple[Quota, ...] | None, ...],
        same: tuple[int, ...],
    ) -> None:
        applied = [(at, rule, numbers[at], own) for at, (rule, own) in enumerate(zip(rules, quotas)) if own is not None]
        self._same = same
        self._takes: list[_Take] = []
        self.messages = [(rule, number) for _, rule, number, _ in applied if rule.messages]
        """The rules with ``messages``, and the numbers of their keys."""
        self.settle_rules: list[SettleRule] = []
        self.max_delays: list[float] = []
        """The seconds that a request may wait for each charge of the enforced take; empty if it never waits."""
        self.is_split = False
        """Whether the enforced take is too much for one take."""
        self._enforce([each for each in applied if each[3] and not each[1].shadow])
        self.is_enforced = len(self._takes)
        """1 if the first take is enforced, or else 0; all others belong to shadow rules."""
        self.checks_blocks = any(checks for _, checks, _, _ in self._takes)
        """Whether the enforced take has charges that check for blocks."""
        self._count([each for each in applied if each[3] and each[1].shadow])
        self.is_final = not (self.max_delays or self.checks_blocks) and len(self._takes) == self.is_enforced
        """Whether the decisions of the store stand as they are."""
        self.is_plain = self.is_final and not (self.settle_rules or self.messages or self.is_split)
        """Whether there is at most one take, which is enforced, and nothing else to do."""

    def planned(self, keys: Keys, tags: Sequence[str], costs: Sequence[float]) -> Planned | None:
        """Everything that a request with these keys and costs takes; ``tags`` are those of the keys.

        Costs and buckets are known to be right, so charges and takes are made without checking them again.
        """
        takes = []
        for layouts, checks, max_wait, on_error in self._takes:
            charges = []
            for quota, prefix, name, number, rule in layouts:  # a comprehension is one more call
                charge: Charge = _new(Charge)
                charge.quota, charge.key, charge.cost, charge.name = quota, keys[number], costs[rule], name  # type: ignore[assignment]  # it has a key
                charge.bucket = f"{prefix}{tags[number]}}}"
                charges.append(charge)
            for checked, number in checks:
                charges.append(block_check(checked.name, keys[number], checked.penalty))  # type: ignore[arg-type]  # it has one
            if max_wait:
                takes.append(Take(tuple(charges), max_wait, on_error=on_error))
            else:
                take: Take = _new(Take)
                take.charges, take.max_wait, take.max_wait_us = tuple(charges), 0.0, 0.0
                take.best_effort, take.operation, take.on_error = False, None, on_error
                takes.append(take)
        return (self, keys, tuple(takes)) if takes or self.messages else None

    def _enforce(self, applied: Sequence[_Applied]) -> None:
        """Lay out the take of all rules that are enforced."""
        buckets = self._buckets(applied)
        checks: dict[tuple[str, int], tuple[CompiledRule, int]] = {}
        for _, rule, number, _ in applied:
            if rule.penalty:
                checks.setdefault((rule.name, self._same[number]), (rule, number))
        weight = sum([each.charge[0].weight for each in buckets.values()]) + BLOCK.weight * len(checks)
        self.is_split = weight > MAX_CHARGES
        if any(rule.max_delay for _, rule, _, _ in applied) and not self.is_split:
            waits = [each.rule.max_delay for each in buckets.values()]
            self.max_delays = waits + [0.0] * len(checks)  # nobody waits for the end of a block
        self._add(buckets, list(checks.values()), 0.0, strictest([rule for _, rule, _, _ in applied]))

    def _count(self, applied: Sequence[_Applied]) -> None:
        """Lay out a take for each shadow rule, of the buckets that no earlier one counts."""
        counted: set[tuple[str, int]] = set()
        for each in applied:
            buckets = {bucket: own for bucket, own in self._buckets([each]).items() if bucket not in counted}
            counted.update(buckets)
            self._add(buckets, [], each[1].max_delay, each[1].on_error)

    def _buckets(self, applied: Sequence[_Applied]) -> dict[tuple[str, int], _Bucket]:
        """The buckets of these rules, each once, by the start of their texts and the numbers of their keys."""
        buckets: dict[tuple[str, int], _Bucket] = {}
        for at, rule, number, quotas in applied:
            for quota in quotas:
                prefix = bucket_prefix(rule.name, quota.name, quota.kind) + "{"
                charge = quota, prefix, rule.name, number, at
                bucket = buckets.setdefault((prefix, self._same[number]), _Bucket(charge, rule))
                if rule.settle and not bucket.settling:
                    bucket.settling = rule
        return buckets

    def _add(
        self,
        buckets: Mapping[tuple[str, int], _Bucket],
        checks: list[tuple[CompiledRule, int]],
        max_wait: float,
        on_error: OnError | None,
    ) -> None:
        """Add a take, if it has any charges, and the rules that settle them."""
        if not buckets:
            return
        settling = [each.settling for each in buckets.values()]
        for rule in dict.fromkeys(settling):
            if rule is not None:
                places = [place for place, other in enumerate(settling) if other is rule]
                self.settle_rules.append(SettleRule(rule, len(self._takes), places))
        self._takes.append(([each.charge for each in buckets.values()], checks, max_wait, on_error))


@dataclass(slots=True, eq=False)
class _Bucket:
    """What is charged to a bucket, the first rule that charges it, and the first one that settles it."""

    charge: _Charge
    rule: CompiledRule
    settling: CompiledRule | None = None


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


def strictest(rules: Iterable[CompiledRule]) -> OnError | None:
    """What to do without the store if the rules of a request differ."""
    return max((rule.on_error for rule in rules), key=_STRICTNESS.index, default=None)


_STRICTNESS: tuple[OnError | None, ...] = ("allow", None, "local", "deny")
"""From the mildest to the strictest; ``None`` leaves it to the store."""
