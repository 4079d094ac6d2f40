"""The middleware's own quota and its rules, read once at start-up, and looked up for each request."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain, count

from starlette.types import Scope

from ..decision import OnError
from ..errors import ConfigurationError
from ..keys.path_patterns import compiled, route_path
from ..keys.request_keys import KeyFunction, bound
from ..limiter import checked_name
from ..quota_text import QuotaLike, as_quotas
from ..quotas import Quota
from .bills import Bill
from .lines import Line
from .penalties.penalty import Penalty, checked_penalty
from .rules import CostFunction, QuotaFunction, Rule, as_cost, as_methods, as_on_error, asks_for_bytes
from .terms import Terms

LONGEST_REMEMBERED = 256
"""Characters of a path whose rules are remembered; for longer ones they are looked up each time."""


@dataclass(frozen=True, slots=True)
class Defaults:
    """What rules have in common unless they say otherwise: a line without a quota."""

    name: str
    key: KeyFunction
    cost: float | CostFunction = 1
    on_error: OnError | None = None

    def __post_init__(self) -> None:
        checked_name(self.name)
        as_cost(self.cost)
        as_on_error(self.on_error)

    def line(self, quota: QuotaLike | QuotaFunction | None) -> Line:
        """A line for this quota, or for none, and all the rest as said here."""
        quotas = () if quota is None else quota if callable(quota) else as_quotas(quota)
        return Line(self.name, quotas, self.key, self.cost, on_error=self.on_error)


class Rulebook:
    """Which lines apply to a request: the own one's, those of the rules that match, or none.

    Raises ``QuotaError``, ``ConfigurationError`` or ``ValueError`` for what cannot be, naming the rule.
    """

    def __init__(
        self,
        quota: QuotaLike | QuotaFunction | None,
        rules: Iterable[Rule],
        defaults: Defaults,
        penalty: Penalty | None = None,
    ) -> None:
        checked_penalty(penalty, quota)
        self._own = () if quota is None else (defaults.line(quota),)
        for line in self._own:
            line.penalty = penalty
        self._own_terms = _terms(self._own)
        self.rules: list[Compiled] = []
        names = {defaults.name}
        for rule in rules:
            name = _own_name(rule, defaults.name, names)
            names.add(name)
            self.rules.append(_compiled(rule, replace(defaults, name=name)))
        self.lines = (*self._own, *(rule.line for rule in self.rules if rule.line))
        require_agreement(self.lines)
        self._find = lru_cache(maxsize=4096)(self._look_up)
        self._terms = lru_cache(maxsize=1024)(Terms)

    def terms(self, scope: Scope) -> Terms | None:
        """What a request with this scope is charged to; ``None`` where it is exempt."""
        method: str = scope.get("method", "")
        if method == "OPTIONS" and _is_preflight(scope):
            return self._for_preflight(route_path(scope))
        if not self.rules:
            return self._own_terms
        path = route_path(scope)
        return self._find(path, method) if len(path) <= LONGEST_REMEMBERED else self._look_up(path, method)

    def bill(self, scope: Scope) -> Bill | Terms | None:
        """The bill of a request; its terms, where they have to ask functions for it; ``None`` where it is exempt."""
        terms = self.terms(scope) if self.rules or scope.get("method") == "OPTIONS" else self._own_terms
        return terms.bill(scope) if terms is not None and terms.is_plain else terms

    def exempts(self, scope: Scope) -> bool:
        """Whether it is a rule that lets a request with this scope off."""
        path, method = route_path(scope), scope.get("method", "").upper()
        ending = next((rule for rule in self.rules if rule.is_final and rule.matches(path, method)), None)
        return ending is not None and ending.rule.quota is None

    def _look_up(self, path: str, method: str) -> Terms | None:
        method = method.upper()
        return self._agreed(self._own, [rule for rule in self.rules if rule.matches(path, method)])

    def _for_preflight(self, path: str) -> Terms | None:
        """The terms of a CORS preflight, which a browser sends by itself: only of rules that name OPTIONS."""
        naming = [rule for rule in self.rules if rule.methods and rule.matches(path, "OPTIONS")]
        return self._agreed((), naming)

    def _agreed(self, own: tuple[Line, ...], matching: list[Compiled]) -> Terms | None:
        """One and the same object for one set of lines, so that what it has remembered is found again."""
        ending = next((rule for rule in matching if rule.is_final), None)
        if ending is not None:
            own, matching = (), [rule for rule in matching if rule is ending or rule.is_shadow]
        lines = (*own, *(rule.line for rule in matching if rule.line))
        return self._terms(lines) if lines else None


@dataclass(frozen=True, slots=True)
class Compiled:
    """A rule, ready to be matched."""

    rule: Rule
    pattern: re.Pattern[str]
    methods: frozenset[str] | None
    is_final: bool
    line: Line | None

    @property
    def is_shadow(self) -> bool:
        return self.line is not None and self.line.shadow

    def matches(self, path: str, method: str) -> bool:
        return (self.methods is None or method in self.methods) and self.pattern.match(path) is not None


def _terms(lines: tuple[Line, ...]) -> Terms | None:
    return Terms(lines) if lines else None


def _is_preflight(scope: Scope) -> bool:
    return any(name == b"access-control-request-method" for name, _ in scope["headers"])


def _own_name(rule: Rule, name: str, taken: Collection[str]) -> str:
    """The name that a rule was given, or else one of its methods and path that no other rule has by accident."""
    if rule.name is not None:
        return checked_name(rule.name)
    made = " ".join([name, *sorted(map(str.upper, rule.methods or ())), str(rule.path)])
    return next(each for each in chain([made], (f"{made} {n}" for n in count(2))) if each not in taken)


def _compiled(rule: Rule, defaults: Defaults) -> Compiled:
    try:
        pattern, _ = compiled(rule.path)
        is_final = (rule.only or rule.quota is None) and not rule.shadow
        line, penalty = None, checked_penalty(rule.penalty, rule.quota)
        if rule.quota is not None or rule.messages is not None:
            line = _specified(rule, defaults).line(rule.quota)
            line.messages = () if rule.messages is None else as_quotas(rule.messages)
            line.shadow, line.penalty = rule.shadow, penalty
            line.settle, line.counts = rule.settle, rule.settle is not None and asks_for_bytes(rule.settle)
        return Compiled(rule, pattern, as_methods(rule.methods), is_final, line)
    except ValueError as error:
        error.add_note(f"in {rule!r}")
        raise


def _specified(rule: Rule, defaults: Defaults) -> Defaults:
    """The defaults, but for what the rule says itself."""
    return replace(
        defaults,
        key=bound(rule.key or defaults.key, rule.path),
        cost=defaults.cost if rule.cost is None else rule.cost,
        on_error=rule.on_error or defaults.on_error,
    )


def require_agreement(lines: Iterable[Line]) -> None:
    """Lines of one name share buckets, so quotas of one name in them must be equal."""
    known: dict[tuple[str, str], Quota] = {}
    for line in lines:
        for quota in () if callable(line.quota) else line.quota:
            other = known.setdefault((line.name, quota.name), quota)
            if other != quota:
                raise ConfigurationError(
                    f"two rules named {line.name!r} have different quotas named {quota.name!r}, {other!r} and "
                    f'{quota!r}, and would share a bucket: give one another name, Rule(..., name="uploads")'
                )
