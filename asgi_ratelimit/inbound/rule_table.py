"""The middleware's own quota and its rules: compiled at start-up, and matched with each request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import blake2b
from inspect import iscoroutinefunction, isfunction
from itertools import chain, count

from starlette.types import Scope

from ..decision import OnError
from ..errors import ConfigurationError
from ..keys import client_ip
from ..keys.base import KeyFunction, ScopeKey, bind
from ..keys.path_patterns import compile_rule_path, route_path
from ..limiter import checked_name
from ..overrides import NO_OVERRIDES, OFF, SHADOW, Override, limit_text, quotas_under
from ..quota_text import QuotaLike, as_quotas
from .checks import require_agreement
from .delays import checked_max_delay
from .functions import (
    CostFunction,
    Failures,
    QuotaFunction,
    checked_cost_or_function,
    checked_key,
    checked_quota,
    takes_bytes,
)
from .penalties import Penalty, checked_penalty
from .plan import Plan
from .rules import CompiledRule, Rule, as_methods, as_on_error, name_of_messages

LONGEST_CACHED = 256
"""The most characters of a method and path that are kept beside their plan; for longer ones only a digest is kept."""

MAX_CACHED = 4096
"""The number of paths whose plans are kept: as many short ones, and as many long ones."""


@dataclass(frozen=True, slots=True)
class Defaults:
    """Values that a rule has unless it has its own."""

    name: str
    key: KeyFunction
    cost: float | CostFunction = 1
    on_error: OnError | None = None
    max_delay: float = 0.0
    base_cost: float = 1
    """The cost if a cost function fails."""
    fallback: ScopeKey = field(default_factory=client_ip)
    """The key if a key function fails."""
    failures: Failures = field(default_factory=Failures)

    def __post_init__(self) -> None:
        checked_name(self.name)
        checked_key(self.key)
        checked_cost_or_function(self.cost)
        as_on_error(self.on_error)
        object.__setattr__(self, "max_delay", checked_max_delay(self.max_delay))

    def compiled(self, quota: QuotaLike | QuotaFunction | None, penalty: Penalty | None = None) -> CompiledRule:
        """A rule that charges this quota for every request, with these values."""
        checked_penalty(penalty, quota)
        quota = None if quota is None else checked_quota(quota)
        quotas = () if quota is None else quota if callable(quota) else as_quotas(quota)
        return CompiledRule(
            self.name,
            quotas,
            self.key,
            self.cost,
            on_error=self.on_error,
            max_delay=self.max_delay,
            penalty=penalty,
            base_cost=self.base_cost,
            fallback=self.fallback,
            failures=self.failures,
        )


class RuleTable:
    """All rules, including the middleware's own quota, and the plan of each request.

    ``root`` is the root path that the app sets by itself: a request may carry it or not, and so may a rule.
    Raises ``QuotaError``, ``ConfigurationError`` or ``ValueError`` for an invalid rule, and names the rule.
    """

    def __init__(
        self,
        quota: QuotaLike | QuotaFunction | None,
        rules: Iterable[Rule],
        defaults: Defaults,
        penalty: Penalty | None = None,
        root: str = "",
        overrides: Mapping[str, Override] = NO_OVERRIDES,
    ) -> None:
        compiled = defaults.compiled(quota, penalty)
        own = [] if quota is None else [compiled]
        declared: list[CompiledRule] = []
        names = {defaults.name}
        for rule in rules:
            name = _name_of(rule, defaults.name, names)
            names |= _names_with(rule, name)
            declared.append(_compiled(rule, replace(defaults, name=name), root))
        self.declared = (*own, *declared)
        """The rules as the program sets them, its own quota first."""
        self._own = _charging(_overridden(own, overrides))
        self.rules = _overridden(declared, overrides)
        self.charging = _charging([*self._own, *self.rules])
        """The rules that charge anything, the middleware's own quota first."""
        if defaults.max_delay and not _charging(self.declared):
            raise ConfigurationError(
                f"max_delay={defaults.max_delay!r} without a quota or rules has nothing to wait for, and is not that "
                f'of dependencies, which have their own: RateLimit("5/minute", max_delay={defaults.max_delay!r})'
            )
        self.on_limited = {rule.name: rule.on_limited for rule in self.rules if rule.on_limited is not None}
        """The ``on_limited`` of rules, by the names of the rules."""
        require_agreement(_charging(self.declared))
        self._plan_of = lru_cache(maxsize=1024)(Plan)
        self._cached = lru_cache(maxsize=MAX_CACHED)(self._matched)
        self._by_digest: dict[bytes, Plan | None] = {}
        self._root = root
        self.constant_plan = self._plan_of(self._own) if self._own and not self.rules else None
        """The plan of all requests except CORS preflights, if there is only the middleware's own quota."""

    def limit_texts(self) -> dict[str, str]:
        """The limits of the rules as the program sets them, as text by name."""
        texts: dict[str, dict[str, None]] = {}
        for rule in self.declared:
            text = limit_text(rule.quota) + (", shadow" if rule.shadow else "")
            texts.setdefault(rule.name, {})[text] = None
        return {name: " and ".join(several) for name, several in texts.items()}

    def plan_for(self, scope: Scope) -> Plan | None:
        """The plan of a request with this scope; ``None`` if it is charged nothing.

        Newlines at the end of the path are taken out of the scope. Starlette ignores one in most routes, but finds
        another path below a mount, so that an endpoint behind it would be reached past its rules.
        """
        method: str = scope.get("method", "")
        if self._root:
            scope["root_path"] = self._root  # as the app does as soon as it is called
        if not self.rules:
            return None if method == "OPTIONS" and _is_preflight(scope) else self.constant_plan
        path = route_path(scope)
        if path[-1:] == "\n":
            path, scope["path"] = path.rstrip("\n"), scope["path"].rstrip("\n")
        if method == "OPTIONS" and _is_preflight(scope):
            return self._plan_for_preflight(path)
        is_short = len(path) + len(method) <= LONGEST_CACHED
        return self._cached(path, method) if is_short else self._plan_for_long(path, method)

    def exempts(self, scope: Scope) -> bool:
        """Whether a rule exempts a request with this scope."""
        if self._root:
            scope = {**scope, "root_path": self._root}
        path, method = route_path(scope), scope.get("method", "").upper()
        final = next((rule for rule in self.rules if rule.is_final and rule.matches(path, method)), None)
        return final is not None and not final.quota

    def _matched(self, path: str, method: str) -> Plan | None:
        method = method.upper()
        return self._plan(self._own, [rule for rule in self.rules if rule.matches(path, method)])

    def _plan_for_long(self, path: str, method: str) -> Plan | None:
        """The plan of a path or method that is too long to be kept: a digest is kept instead."""
        text = f"{len(method)} {method}{path}"
        digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        if digest not in self._by_digest:
            if len(self._by_digest) >= MAX_CACHED:
                del self._by_digest[next(iter(self._by_digest))]
            self._by_digest[digest] = self._matched(path, method)
        return self._by_digest[digest]

    def _plan_for_preflight(self, path: str) -> Plan | None:
        """The plan of a CORS preflight, which a browser sends by itself: it has only rules that name OPTIONS."""
        return self._plan((), [rule for rule in self.rules if rule.methods and rule.matches(path, "OPTIONS")])

    def _plan(self, own: tuple[CompiledRule, ...], matching: Sequence[CompiledRule]) -> Plan | None:
        """The plan of rules that match: one object for each set of them."""
        charging = _selected(own, matching)
        return self._plan_of(charging) if charging else None


def _selected(own: Sequence[CompiledRule], matching: Sequence[CompiledRule]) -> tuple[CompiledRule, ...]:
    """The rules that charge a request which these rules match, the middleware's own quota first."""
    final = next((rule for rule in matching if rule.is_final), None)
    if final is not None:
        own, matching = (), [rule for rule in matching if rule is final or rule.shadow]
    return (*own, *[rule for rule in matching if not rule.is_exemption])


def _charging(rules: Iterable[CompiledRule]) -> tuple[CompiledRule, ...]:
    return tuple([rule for rule in rules if not rule.is_exemption])


def _overridden(rules: Iterable[CompiledRule], overrides: Mapping[str, Override]) -> list[CompiledRule]:
    return [overridden(rule, overrides.get(rule.name)) for rule in rules]


def overridden(rule: CompiledRule, override: Override | None) -> CompiledRule:
    """A rule under the override of its name. A rule that decides alone also decides alone under the override."""
    if override is None:
        return rule
    if override.word == OFF:
        return replace(rule, quota=(), messages=())
    if override.word == SHADOW:
        return replace(rule, shadow=True)
    return replace(rule, quota=quotas_under(override, () if callable(rule.quota) else rule.quota))


def _is_preflight(scope: Scope) -> bool:
    return any(name == b"access-control-request-method" for name, _ in scope["headers"])


def _name_of(rule: Rule, name: str, others: Set[str]) -> str:
    """The name of a rule, or else one made of its methods and path that no other rule has by accident."""
    if rule.name is not None:
        return checked_name(rule.name)
    text = " ".join([name, *sorted(map(str.upper, rule.methods or ())), str(rule.path)])
    numbered = chain([text], (f"{text} {n}" for n in count(2)))
    return next(each for each in numbered if others.isdisjoint(_names_with(rule, each)))


def _names_with(rule: Rule, name: str) -> Set[str]:
    """The names that a rule has with this name: its own, and that of its messages, if it limits any."""
    return {name} if rule.messages is None else {name, name_of_messages(name)}


def _compiled(rule: Rule, defaults: Defaults, root: str) -> CompiledRule:
    try:
        pattern, _ = compile_rule_path(rule.path, root)
        return replace(
            _specified(rule, defaults, root).compiled(rule.quota, rule.penalty),
            source=rule,
            pattern=pattern,
            methods=as_methods(rule.methods),
            is_final=(rule.only or rule.quota is None) and not rule.shadow,
            shadow=rule.shadow,
            messages=() if rule.messages is None else as_quotas(rule.messages),
            settle=rule.settle,
            on_limited=rule.on_limited,
            settles_by_bytes=rule.settle is not None and takes_bytes(rule.settle),
            settles_async=not isfunction(rule.settle) or iscoroutinefunction(rule.settle),
        )
    except ValueError as error:
        error.add_note(f"in {rule!r}")
        raise


def _specified(rule: Rule, defaults: Defaults, root: str) -> Defaults:
    """The defaults, except where the rule has its own values."""
    return replace(
        defaults,
        key=bind(defaults.key if rule.key is None else rule.key, rule.path, root),
        cost=defaults.cost if rule.cost is None else rule.cost,
        base_cost=defaults.base_cost if callable(defaults.cost) else defaults.cost,
        on_error=rule.on_error or defaults.on_error,
        max_delay=defaults.max_delay if rule.max_delay is None else rule.max_delay,
    )


def checked_rules(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """The rules of a middleware; ``ConfigurationError`` for anything else."""
    if isinstance(rules, Rule) or not isinstance(rules, Iterable):
        raise ConfigurationError(f"rules are a list, not {rules!r}: rules=[Rule(...)]")
    listed = tuple(rules)
    wrong = [rule for rule in listed if not isinstance(rule, Rule)]
    if wrong:
        raise ConfigurationError(f'rules are a list of Rule, not of {wrong[0]!r}: rules=[Rule("/login", "3/minute")]')
    return listed
