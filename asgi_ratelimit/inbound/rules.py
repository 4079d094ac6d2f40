"""Rules: which requests are charged to which quotas, under which key."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import lru_cache
from itertools import chain, count

from starlette.types import Scope

from ..decision import Charge, Take, checked_cost
from ..errors import ConfigurationError
from ..limiter import checked_name
from ..quota_text import QuotaLike, as_quotas
from ..quotas import Quota
from .paths import compiled, route_path
from .scope_keys import KeyFunction, ScopeKey, bound


@dataclass(frozen=True, slots=True)
class Rule:
    """Requests whose path matches ``path``, in Starlette's own syntax, are charged to ``quota``.

    Every rule that matches applies, together with the middleware's own quota, all or nothing. With ``only`` the
    request is charged to this rule alone; with ``quota=None`` to nothing at all; where several such rules match, the
    first one decides. ``methods`` narrows a rule down to some HTTP methods (GET covers HEAD); ``key`` and ``cost``
    are the middleware's own unless given. Rules of one ``name`` share their buckets, and a request is charged to
    each bucket once; by default the buckets belong to the path and the methods.
    """

    path: str
    quota: QuotaLike | None
    _: KW_ONLY
    methods: Collection[str] | None = None
    key: KeyFunction | None = None
    cost: float | None = None
    name: str | None = None
    only: bool = False


class Line:
    """What a request is charged to where a rule, or the middleware's own quota, applies: one line of its bill."""

    def __init__(self, name: str, quotas: tuple[Quota, ...], key: KeyFunction, cost: float) -> None:
        self.name = name
        self.quotas = quotas
        self.key = key
        self.cost = cost
        self.scope_key = key.of if isinstance(key, ScopeKey) else None
        self.take = lru_cache(maxsize=16_384)(self._take)
        """The take of this line alone, for a key; the same one each time for a key that comes again soon."""

    def charges(self, key: str) -> tuple[Charge, ...]:
        """One charge for each quota."""
        return tuple([Charge(quota, key, self.cost, self.name) for quota in self.quotas])

    def _take(self, key: str) -> Take:
        return Take(self.charges(key))


class Rulebook:
    """The middleware's own line and its rules, read once at start-up, and looked up for each request.

    Raises ``QuotaError``, ``ConfigurationError`` or ``ValueError`` for what cannot be, naming the rule.
    """

    def __init__(self, own: Line | None, rules: Iterable[Rule], *, name: str, key: KeyFunction, cost: float) -> None:
        self._own = (own,) if own else ()
        self._rules = []
        names = {name}
        for rule in rules:
            own_name = _own_name(rule, name, names)
            names.add(own_name)
            self._rules.append(_compiled(rule, own_name, key, cost))
        _require_agreement([*self._own, *(rule.line for rule in self._rules if rule.line)])

    def lines(self, scope: Scope) -> Sequence[Line]:
        """What a request with this scope is charged to, in order; nothing at all where it is exempt."""
        if not self._rules:
            return self._own
        path, method = route_path(scope), scope.get("method", "").upper()
        matching = [rule for rule in self._rules if rule.matches(path, method)]
        for rule in matching:
            if rule.final:
                return (rule.line,) if rule.line else ()
        return (*self._own, *(rule.line for rule in matching if rule.line))


@dataclass(frozen=True, slots=True)
class _Compiled:
    """A rule, ready to be matched."""

    pattern: re.Pattern[str]
    methods: frozenset[str] | None
    final: bool
    line: Line | None

    def matches(self, path: str, method: str) -> bool:
        return (self.methods is None or method in self.methods) and self.pattern.match(path) is not None


def _methods(rule: Rule) -> frozenset[str] | None:
    if rule.methods is None:
        return None
    if isinstance(rule.methods, str) or not rule.methods:
        raise ConfigurationError(f'methods is a list of HTTP methods, not {rule.methods!r}: methods=["GET", "POST"]')
    named = {method.upper() for method in rule.methods}
    return frozenset(named | {"HEAD"} if "GET" in named else named)


def _own_name(rule: Rule, name: str, taken: Collection[str]) -> str:
    """The name that a rule was given, or else one of its methods and path that no other rule has by accident."""
    if rule.name is not None:
        return checked_name(rule.name)
    made = " ".join([name, *sorted(map(str.upper, rule.methods or ())), str(rule.path)])
    return next(each for each in chain([made], (f"{made} {n}" for n in count(2))) if each not in taken)


def _compiled(rule: Rule, name: str, key: KeyFunction, cost: float) -> _Compiled:
    try:
        line = None if rule.quota is None else _line(rule, rule.quota, name, key, cost)
        return _Compiled(compiled(rule.path)[0], _methods(rule), rule.only or rule.quota is None, line)
    except ValueError as error:
        error.add_note(f"in {rule!r}")
        raise


def _line(rule: Rule, quota: QuotaLike, name: str, key: KeyFunction, cost: float) -> Line:
    return Line(
        name,
        as_quotas(quota),
        bound(rule.key or key, rule.path),
        cost if rule.cost is None else checked_cost(rule.cost),
    )


def _require_agreement(lines: Iterable[Line]) -> None:
    """Lines of one name share buckets, so quotas of one name in them must be equal."""
    known: dict[tuple[str, str], Quota] = {}
    for line in lines:
        for quota in line.quotas:
            other = known.setdefault((line.name, quota.name), quota)
            if other != quota:
                raise ConfigurationError(
                    f"two rules named {line.name!r} have different quotas named {quota.name!r}, {other!r} and "
                    f'{quota!r}, and would share a bucket: give one another name, Rule(..., name="uploads")'
                )
