"""Which rules apply to a request: the table of all rules of a middleware finds them by path and method."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, count

from starlette.types import Scope

from ..buckets import DEFAULT_NAME
from ..decision import OnError
from ..errors import checked_name
from ..headers.header_rendering import DialectName, HeaderOptions
from ..keys import KeyFunction, client_ip
from ..keys.client_ip import address_key
from ..keys.path_patterns import normalised, readings, route_path
from ..overrides import NO_OVERRIDES, Override
from ..quota_text import QuotaLike
from .delays import MAX_WAITING
from .penalties import Penalty
from .plan import MAX_CACHED, Plan
from .rules import CompiledRule, Rule, require_agreement, under_overrides
from .user_functions import CostFunction, Failures, QuotaFunction

# The most characters of a method and path that are kept beside their plan; longer ones are matched each time
LONGEST_CACHED = 256


@dataclass(frozen=True, slots=True)
class Options:
    """As in ``RateLimitMiddleware``."""

    quota: QuotaLike | QuotaFunction | None
    rules: tuple[Rule, ...]
    key: KeyFunction
    name: str | None
    cost: float | CostFunction
    headers: DialectName | HeaderOptions | None
    on_error: OnError | None
    penalty: Penalty | None
    max_delay: float
    max_waiting: int


# The options of a middleware without arguments
USUAL = Options(None, (), client_ip(), None, 1, "draft-10", None, None, 0.0, MAX_WAITING)


class RuleTable:
    """All rules, including the middleware's own quota, and the plan of each request.

    Rules without a name are named after the middleware, or else after its ``place``. ``root`` is the root path that the
    app sets by itself: a request may carry it or not, and so may a rule.
    Raises ``QuotaError``, ``ConfigurationError`` or ``ValueError`` for an invalid rule, and names the rule.
    """

    def __init__(
        self,
        options: Options,
        failures: Failures,
        place: str = DEFAULT_NAME,
        root: str = "",
        overrides: Mapping[str, Override] = NO_OVERRIDES,
    ) -> None:
        defaults = CompiledRule(
            place if options.name is None else options.name,
            (),
            options.key,
            options.cost,
            on_error=options.on_error,
            max_delay=options.max_delay,
            base_cost=1 if callable(options.cost) else options.cost,
            fallback=address_key([options.key, *[rule.key for rule in options.rules]]),
            failures=failures,
        )
        compiled = defaults.limiting(options.quota, options.penalty)
        own = [] if compiled.is_exemption else [compiled]
        self._own = _charging(under_overrides(own, overrides))
        # The middleware's own quota, if it is no function: it applies where the quota of a rule fails
        self.default = next((each for each in self._own if not callable(each.quota) and not each.shadow), None)
        declared: list[CompiledRule] = []
        names = {defaults.name}
        for rule in options.rules:
            name = _name_of(rule, defaults.name, names)
            names.add(name)
            declared.append(defaults.compiled_rule(rule, name, root, self.default))
        self.declared = (*own, *declared)  # the rules as the program sets them, its own quota first
        self.limits = _charging(self.declared)  # those that are no exemptions
        self.rules = under_overrides(declared, overrides)
        # The rules that charge anything, the middleware's own quota first
        self.charging = _charging([*self._own, *self.rules])
        # The `on_limited` of rules, by the names of the rules
        self.on_limited = {rule.name: rule.on_limited for rule in self.rules if rule.on_limited is not None}
        require_agreement(self.limits)
        self._plan_of = lru_cache(MAX_CACHED)(Plan)
        self._cached = lru_cache(MAX_CACHED)(self._matched)
        self._root = root

    def plan_for(self, scope: Scope) -> Plan | None:
        """The plan of a request with this scope; ``None`` if it is charged nothing.

        Newlines at the end of the path are taken out of the scope. Starlette ignores one in most routes, but finds
        another path below a mount, so that an endpoint behind it would be reached past its rules.
        """
        method: str = scope.get("method", "")
        if self._root:
            scope["root_path"] = self._root  # as the app does as soon as it is called
        path: str = "/" if not self.rules else route_path(scope) if scope.get("root_path") else scope["path"]
        if path[-1:] == "\n":
            path, scope["path"] = path.rstrip("\n"), scope["path"].rstrip("\n")
        asks = method == "OPTIONS" and any(name == b"access-control-request-method" for name, _ in scope["headers"])
        matched = self._matched if len(path) + len(method) > LONGEST_CACHED else self._cached
        return matched(path, method, asks)

    def exempts(self, scope: Scope) -> bool:
        """Whether a rule exempts a request with this scope."""
        if self._root:
            scope = {**scope, "root_path": self._root}
        final = self._final(self.rules, route_path(scope), scope.get("method", "").upper())
        return final is not None and not final.quota

    def _matched(self, path: str, method: str, asks: bool) -> Plan | None:
        """The plan of the rules that match: a rule charges the path in any of the ways in which apps read it.

        A CORS preflight, which ``asks`` and which a browser sends by itself, has only rules that name its method.
        """
        rules = [rule for rule in self.rules if rule.methods or not asks]
        paths, method = readings(path), method.upper()
        final = self._final(rules, path, method)
        matching = [rule for rule in rules if any(rule.matches(each, method) for each in paths)]
        if final is not None:
            matching = [rule for rule in matching if rule is final or rule.shadow]
        elif not asks:
            matching = [*self._own, *matching]
        charging = _charging(matching)
        return self._plan_of(charging) if charging else None

    def _final(self, rules: Sequence[CompiledRule], path: str, method: str) -> CompiledRule | None:
        """The first rule that decides alone, also where the app reads the path as normalised."""
        final = [rule for rule in rules if rule.is_final and rule.matches(path, method)]
        return next((rule for rule in final if rule.matches(normalised(path), method)), None)


def _charging(rules: Iterable[CompiledRule]) -> tuple[CompiledRule, ...]:
    return tuple([rule for rule in rules if not rule.is_exemption])


def _name_of(rule: Rule, name: str, others: Set[str]) -> str:
    """The name of a rule, or else one made of its methods and path that no other rule has by accident."""
    if rule.name is not None:
        return checked_name(rule.name)
    text = " ".join([name, *sorted(map(str.upper, rule.methods or ())), str(rule.path)])
    numbered = chain([text], (f"{text} {n}" for n in count(2)))
    return next(each for each in numbered if each not in others)
