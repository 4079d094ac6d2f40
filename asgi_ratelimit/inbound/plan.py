"""Plans: what a request is charged under the rules that match it.

A plan is worked out once for each set of rules. A request only fills in its keys, so nothing is cached for a client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from starlette.types import Scope

from ..buckets import SHORT, bucket_prefix, unsafe_character
from ..decision import Charge, ChargeTemplate, OnError, Take
from ..errors import ConfigurationError
from ..headers import QuotaHeaders
from ..keys import client_ip
from ..keys.base import KeyFunction, ScopeKey
from ..quotas import MAX_CHARGES
from .functions.connection_functions import Results, connection_of
from .penalties.block_checks import BlockCheck, block_check
from .rules import AppliedRule, CompiledRule, constant_quotas


@dataclass(slots=True, eq=False)
class SettleRule:
    """A rule with ``settle``, and the charges that it settles: their places in the take of that number."""

    rule: CompiledRule
    take_number: int
    places: tuple[int, ...]


@dataclass(slots=True, eq=False)
class PlannedTakes:
    """Everything that one request takes, if that is more than a single take."""

    takes: tuple[Take, ...]
    is_enforced: bool
    """Whether the first take is enforced; all others belong to shadow rules."""
    checks_blocks: bool = False
    """Whether the enforced take has charges that check for blocks."""
    settle_rules: tuple[SettleRule, ...] = ()
    messages: tuple[AppliedRule, ...] = ()
    """The rules with ``messages``, each with the key that it has found."""
    max_delays: tuple[float, ...] = ()
    """The seconds that a request may wait for each charge of the enforced take; empty if it never waits."""
    parts: tuple[Take, ...] = ()
    """The takes that the enforced one is split into, if it is too much for one take."""


class LongTake(Take):
    """Everything that a request takes, if that is too much for one take; only its parts are given to a store."""

    __slots__ = ()

    def _require_few_distinct_buckets(self) -> None:
        """Require nothing here: each of the parts is checked."""


class PlannedCharge:
    """The only charge of a request, whose key is read from the scope; most requests need no more."""

    __slots__ = ("_is_safe", "_prefix", "headers", "key_of", "template")

    def __init__(self, template: ChargeTemplate, key: KeyFunction, key_of: Callable[[Scope], str | None]) -> None:
        self.template = template
        self.headers = QuotaHeaders(template.quota, template.quota.name)
        """The headers that the answers to such requests report."""
        self.key_of = key_of
        self._prefix = template.prefix
        self._is_safe = type(key) is client_ip
        """Whether no key can be empty, too long, or in need of escaping. Checking each key would take as long as
        finding it."""

    def bucket(self, scope: Scope) -> str | None:
        """The bucket of the request with this scope, if its text contains the key unchanged.

        ``None`` if the request has no key, or one that must be escaped or hashed, or if the key function fails:
        ``Plan.take`` then works out what the request takes.
        """
        try:
            key = self.key_of(scope)
        except Exception:  # noqa: BLE001  # ``Plan.take`` finds the rule whose key function failed
            return None
        if key is not None and (self._is_safe or (0 < len(key) <= SHORT and unsafe_character(key) is None)):
            return f"{self._prefix}{key}}}"  # as ``buckets.bucket`` writes it, without the call
        return None


class Plan:
    """What a request is charged under these rules."""

    def __init__(self, rules: Sequence[CompiledRule]) -> None:
        self.rules = tuple(rules)
        self._is_constant = all(rule.is_constant for rule in rules)
        self.is_single = self._is_constant and not any(map(_needs_more, rules)) and _fits(rules)
        """Whether it charges a single take, with keys that are read from the scope, so that ``take`` is enough."""
        self.may_wait = any(rule.max_delay > 0.0 and not rule.shadow for rule in rules)
        """Whether a request may wait for its slot instead of being refused."""
        keys = list(dict.fromkeys([rule.key for rule in rules])) if self.is_single else []
        self._key_functions = [key.of for key in keys if isinstance(key, ScopeKey)]
        self._key_numbers = [keys.index(rule.key) for rule in rules] if self.is_single else []
        self._templates = list(_templates(rules, self._key_numbers))
        self._may_repeat = len({template.prefix for template, _ in self._templates}) < len(self._templates)
        self._on_error = strictest(rules)
        self.charge: PlannedCharge | None = None
        """The only charge of the plan, if it has just one."""
        if len(self._templates) == 1 and self._on_error is None:
            self.charge = PlannedCharge(self._templates[0][0], keys[0], self._key_functions[0])
        for number in range(len(self._key_functions)):
            self._watch(number)

    def _watch(self, number: int) -> None:
        """Watch a key until it has come once, or until a warning about its rules; after that, it costs nothing."""
        key_of = self._key_functions[number]
        watched = [rule for rule, own in zip(self.rules, self._key_numbers) if own == number]

        def watched_key_of(scope: Scope) -> str | None:
            key = key_of(scope)
            for rule in watched:
                rule.watch(key)
            if all(rule.key_watch.is_over for rule in watched):
                self._key_functions[number] = key_of
                if self.charge is not None:
                    self.charge.key_of = key_of
            return key

        def first_key_of(scope: Scope) -> str | None:
            key = key_of(scope)
            return key if key is None else watched_key_of(scope)  # ``take`` counts a request without a key

        self._key_functions[number] = watched_key_of
        if self.charge is not None:
            self.charge.key_of = first_key_of

    def take(self, scope: Scope) -> Take | None:
        """The take of the request with this scope under a single plan; ``None`` if no rule has a key for it.

        May raise ``LimitUnavailable``.
        """
        keys = []
        try:
            for key_of in self._key_functions:
                keys.append(key_of(scope))  # noqa: PERF401  # a comprehension is one more call
        except Exception:  # noqa: BLE001  # A key function failed: evaluate rule by rule to find which one.
            planned = _planned(self._apply(scope))
            return planned.takes[0] if planned else None
        charges = []
        for template, key_number in self._templates:
            key = keys[key_number]
            if key is not None:
                charges.append(Charge(template.quota, key, template.cost, template.name))
        if len(charges) != len(self._templates) or self._may_repeat:
            return self._partial_take(charges, keys)
        return Take(tuple(charges), on_error=self._on_error)

    async def evaluate(self, scope: Scope) -> PlannedTakes | None:
        """Everything that the request with this scope takes, under any plan. May raise ``LimitUnavailable``."""
        if self._is_constant:
            return _planned(self._apply(scope))
        connection, results = connection_of(scope), Results()
        applied = []
        for rule in self.rules:
            try:
                applied.append(await rule.evaluate(connection, results))
            except Exception as error:  # noqa: BLE001  # a function of the user's, which may raise whatever it likes
                rule.fail(error)
        return _planned([each for each in applied if each])

    def _apply(self, scope: Scope) -> list[AppliedRule]:
        """The charges of each of the rules, all of which are constant."""
        keys: dict[KeyFunction, str | None] = {}
        for rule in self.rules:
            if rule.key not in keys:
                keys[rule.key] = rule.key_of(scope)
            rule.watch(keys[rule.key])
        applied = [rule.apply(keys[rule.key]) for rule in self.rules]
        return [each for each in applied if each]

    def _partial_take(self, charges: Iterable[Charge], keys: Sequence[str | None]) -> Take | None:
        """The take if some rules have no key, or if the keys of two functions may be equal."""
        distinct = _by_bucket(charges)
        with_key = [rule for rule, number in zip(self.rules, self._key_numbers) if keys[number] is not None]
        return Take(distinct, on_error=strictest(with_key)) if distinct else None


def _needs_more(rule: CompiledRule) -> bool:
    """Whether a rule needs more than enforced charges."""
    return bool(rule.shadow or rule.penalty or rule.settle or rule.messages or rule.max_delay)


def _fits(rules: Iterable[CompiledRule]) -> bool:
    """Whether the charges of constant rules fit into one take, whatever their keys."""
    return sum([quota.weight for _, quota in constant_quotas(rules)]) <= MAX_CHARGES


def _templates(rules: Iterable[CompiledRule], key_numbers: Iterable[int]) -> Iterator[tuple[ChargeTemplate, int]]:
    """The charges of constant rules, with the numbers of their keys: one for each bucket that is certainly the same."""
    buckets = set()
    for rule, key_number in zip(rules, key_numbers):
        for quota in rule.quota:  # type: ignore[union-attr]  # it is constant
            prefix = bucket_prefix(rule.name, quota.name, quota.kind) + "{"
            if (prefix, key_number) not in buckets:
                buckets.add((prefix, key_number))
                yield ChargeTemplate(quota, rule.cost, rule.name, prefix), key_number  # type: ignore[arg-type]


def _planned(applied: Sequence[AppliedRule]) -> PlannedTakes | None:
    """One take for all rules that are enforced, and one for each shadow rule."""
    enforced = [each for each in applied if each.quotas and not each.rule.shadow]
    shadows = [each for each in applied if each.quotas and each.rule.shadow]
    checks = [block_check(each.rule.name, each.key, each.rule.penalty) for each in enforced if each.rule.penalty]
    takes, rules_of_takes = [], []
    max_delays: list[float] = []
    parts: tuple[Take, ...] = ()
    if enforced:
        by_bucket: dict[str, tuple[CompiledRule, Charge]] = {}
        settling: dict[str, CompiledRule] = {}
        for each in enforced:
            for charge in _charges(each):
                by_bucket.setdefault(charge.bucket, (each.rule, charge))
                if each.rule.settle:
                    settling.setdefault(charge.bucket, each.rule)
        charges = [*[charge for _, charge in by_bucket.values()], *_by_bucket(checks)]
        rules = [each.rule for each in enforced]
        settles = any(rule.settle for rule in rules)
        try:
            takes.append(Take(tuple(charges), on_error=strictest(rules), may_settle=settles))
        except ConfigurationError:  # too much for one take; the size is not checked for each request
            takes.append(LongTake(tuple(charges), on_error=strictest(rules), may_settle=True))
            parts = tuple([Take(part, on_error=strictest(rules), may_settle=True) for part in in_parts(charges)])
        rules_of_takes.append([settling.get(bucket, rule) for bucket, (rule, _) in by_bucket.items()])
        if not parts and any(rule.max_delay for rule in rules):
            max_delays = [rule.max_delay for rule, _ in by_bucket.values()]
            max_delays.extend([0.0] * (len(charges) - len(max_delays)))  # nobody waits for the end of a block
    counted: set[str] = set()
    for each in shadows:
        shadow_charges = tuple([charge for charge in _charges(each) if charge.bucket not in counted])
        if shadow_charges:
            counted.update([charge.bucket for charge in shadow_charges])
            settles = each.rule.settle is not None
            takes.append(Take(shadow_charges, each.rule.max_delay, on_error=each.rule.on_error, may_settle=settles))
            rules_of_takes.append([each.rule] * len(shadow_charges))
    messages = tuple([each for each in applied if each.rule.messages])
    if not takes and not messages:
        return None
    settle_rules = tuple(_settle_rules(rules_of_takes))
    return PlannedTakes(tuple(takes), bool(enforced), bool(checks), settle_rules, messages, tuple(max_delays), parts)


def _charges(applied: AppliedRule) -> tuple[Charge, ...]:
    return tuple([Charge(quota, applied.key, applied.cost, applied.rule.name) for quota in applied.quotas])


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
    return [_by_bucket(sorted(part, key=lambda each: isinstance(each, BlockCheck))) for part in parts if part]


def _settle_rules(rules_of_takes: Sequence[Sequence[CompiledRule]]) -> Iterator[SettleRule]:
    """The rules with ``settle`` among the rules of each charge of each take."""
    for number, rules in enumerate(rules_of_takes):
        for rule in dict.fromkeys(rules):
            if rule.settle is not None:
                yield SettleRule(rule, number, tuple([place for place, other in enumerate(rules) if other is rule]))


def _by_bucket(charges: Iterable[Charge]) -> tuple[Charge, ...]:
    """The first charge of each bucket."""
    first: dict[str, Charge] = {}
    for charge in charges:
        first.setdefault(charge.bucket, charge)
    return tuple(first.values())


def strictest(rules: Iterable[CompiledRule]) -> OnError | None:
    """What to do without the store if the rules of a request differ."""
    return max((rule.on_error for rule in rules), key=_STRICTNESS.index, default=None)


_STRICTNESS: tuple[OnError | None, ...] = ("allow", None, "local", "deny")
"""From the mildest to the strictest; ``None`` leaves it to the store."""
