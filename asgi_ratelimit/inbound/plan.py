"""What a request is charged: the table of all rules finds those that match it, and a plan says what they charge.

A plan is made once for each set of rules, and fills in what depends on the request: keys, and the quotas and costs that
functions return.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, count
from typing import Any, Final, TypeAlias

from starlette.types import Scope

from ..buckets import DEFAULT_NAME, LONGEST_KEY, SHORT, tag_of, unsafe_character
from ..decision import Charge, OnError, Take
from ..errors import ConfigurationError, checked_name
from ..headers.header_rendering import DialectName, HeaderOptions
from ..keys import KeyFunction, client_ip
from ..keys.client_ip import address_key
from ..keys.path_patterns import normalised, readings, route_path
from ..overrides import NO_OVERRIDES, Override
from ..quota_text import QuotaLike
from ..quotas import MAX_CHARGES, has_places, require_few
from .penalties import BLOCK, CHECK_COST, BlockCheck, Penalty
from .refusals import LimitUnavailable
from .rules import NOTHING, STRICTNESS, Charged, CompiledRule, Rule, require_agreement, under_overrides
from .user_functions import CostFunction, Failures, QuotaFunction, Results, connection_of

MAX_CACHED = 4096  # for how many paths, and for how many sets of rules, plans are kept

MAX_KEPT = 2048  # for how many keys, or combinations of keys, a plan keeps takes

# A rule, the number of its key, what it charges, and the cost of each charge
_Row: TypeAlias = "tuple[CompiledRule, int, Charged, Any]"

MAX_WAITING: Final = 1000  # how many requests may wait at a time by default

LONGEST_CACHED = 256  # the most characters of a method and path that are kept beside their plan

MESSAGE_KEYS: Final = "asgi_ratelimit.message_keys"  # the entry that passes the keys of a handshake to its messages

SCOPE_KEY: Final = "asgi_ratelimit"  # the entry in the scope that stores the limits of a request


def _charges(charged: Charged, key: str, cost: float) -> tuple[Charge, ...]:
    """A charge of this key for each quota; cost and bucket are known to be right, and not checked again."""
    tag = key if 0 < len(key) <= SHORT and unsafe_character(key) is None else tag_of(key)  # as `tag_of` begins
    charges = tuple(map(Charge.__new__, [Charge] * len(charged.quotas)))
    for charge, (quota, prefix) in zip(charges, charged.quotas):
        charge.quota, charge.key, charge.cost, charge.name = quota, key, cost, charged.name
        charge.bucket = f"{prefix}{tag}}}"
    return charges


def _has_charged(scope: Scope, name: str) -> bool:
    """Whether an outer limit with this name has charged a request."""
    taken = getattr(scope.get(SCOPE_KEY), "taken", ())
    return any(charge.name == name for _, decision in taken for charge in decision.charges)


class Plan:
    """What a request is charged under these rules, and what follows from its decisions."""

    def __init__(self, rules: Sequence[CompiledRule]) -> None:
        self.rules = tuple(rules)
        evaluated = [*rules, *[rule.instead for rule in rules if callable(rule.quota) and rule.instead is not None]]
        first = {id(rule.key): rule for rule in reversed(evaluated)}
        self._keyed = list(first.values())  # the first rule of each key function: each function is called once
        # The numbers of the key functions, by their identities
        self._numbers = {function: number for number, function in enumerate(first)}
        self._rows = tuple([(rule, self._numbers[id(rule.key)], rule.charged, rule.cost) for rule in rules])
        self._watched = list(rules)  # the rules that have charged nobody yet
        # Whether functions of the program are called
        self._calls = any(rule.has_functions or not rule.reads_scope for rule in evaluated)
        weight = sum([quota.weight for rule in rules for quota, _ in rule.charged.quotas]) + BLOCK.weight * len(rules)
        self._may_be_too_much = weight > MAX_CHARGES or any(callable(rule.quota) for rule in rules)
        # The takes of keys and rows. Making them is the larger part of a plan's work: once no rule is watched, it keeps
        # them for the next requests of a client
        self._takes: Callable[..., tuple[Take, ...]] = self._new_takes
        # The names of the rules in shadow, which share no name with others
        self.shadows = {rule.name for rule in rules if rule.shadow}
        settling = [rule for rule in reversed(rules) if rule.settle is not None]
        # The first rule with `settle` of each name
        self.settling: dict[str | None, CompiledRule] = {rule.name: rule for rule in settling}
        self.settles_by_bytes = any(rule.settles_by_bytes for rule in settling)
        self.settles_at_once = all(rule.settles_at_once for rule in settling)
        self._max_delays = {rule.name: rule.max_delay for rule in reversed(evaluated) if not rule.shadow}
        # Whether a request may wait for its slot instead of being refused
        self.may_wait = any(self._max_delays.values())
        # Whether a request may hold a place in flight, which it gives back at its end
        self.holds = any(callable(rule.quota) or has_places(rule.quota) for rule in evaluated)
        # The rules whose quotas the messages of a WebSocket take from
        self.throttling = [rule for rule in rules if rule.messages and not rule.shadow]
        self.punishes = any(rule.penalty is not None for rule in evaluated)
        # Whether the decision of the store stands as it is
        self.is_final = not (self.may_wait or self.punishes or self.shadows)

    def evaluate(self, scope: Scope) -> tuple[Take, ...] | Awaitable[tuple[Take, ...]]:
        """The takes of the request with this scope, first the enforced one. May raise ``LimitUnavailable``.

        They are returned at once if no function of the program is called, otherwise as an awaitable.
        """
        keys: list[str | None] = []
        for rule in self._keyed:
            key = None
            if rule.reads_scope:
                try:
                    key = rule.key.of(scope)  # type: ignore[attr-defined]  # it is a ScopeKey
                except Exception as error:  # noqa: BLE001  # an object of the app's may do anything
                    key = rule.address(scope, error)
            keys.append(key)
        if self.throttling and scope["type"] == "websocket":
            scope[MESSAGE_KEYS] = keys  # which `_called` completes
        if self._calls:
            return self._called(scope, keys)
        return self._takes(tuple(keys), self._rows)

    async def _called(self, scope: Scope, keys: list[str | None]) -> tuple[Take, ...]:
        """The takes after all functions were called; a rule whose quota fails is replaced, or left out."""
        connection, takes = connection_of(scope), self._takes
        results: Results = {}
        rows: list[_Row] = []
        for number, rule in enumerate(self._keyed):
            if not rule.reads_scope:
                keys[number] = key = await rule.key_of(connection)
                takes = takes if len(key or "") <= LONGEST_KEY else self._new_takes  # clients may not fill the memory
        for row in self._rows:
            rule, number, charged, cost = row
            cost = 0.0 if keys[number] is None else cost  # its function is not called
            if keys[number] is not None and rule.has_functions:
                try:
                    charged, cost = await rule.charges(connection, results)
                except Exception as error:  # a function of the user's, which may raise whatever it likes
                    if (instead := rule.without_quota(error)) is None:
                        continue
                    applies = bool(instead.charged.quotas) or _has_charged(scope, instead.name)
                    if not applies or keys[self._numbers[id(instead.key)]] is None:
                        raise LimitUnavailable from error  # nothing would limit the request
                    rule, charged, cost = instead, instead.charged, instead.base_cost
                number = self._numbers[id(rule.key)]
            rows.append((rule, number, charged, cost))
        return takes(tuple(keys), tuple(rows))

    def _watch(self, keys: Sequence[str | None], rows: Sequence[_Row]) -> None:
        """Watch each rule until it has charged somebody once, or until a warning."""
        for rule, number, charged, _ in rows:
            if not rule.key_watch.is_over:
                rule.key_watch.see(None if charged is NOTHING else keys[number], rule.name, rule.key)
        self._watched = [rule for rule in self._watched if not rule.key_watch.is_over]
        if not self._watched:
            self._takes = lru_cache(MAX_KEPT)(self._new_takes)

    def message_take(self, keys: Sequence[str | None]) -> Take | None:
        """What each message of a WebSocket takes, if anything, under the keys of its handshake."""
        charges, strictest = dict[str, Charge](), 0
        for rule in self.throttling:
            if (key := keys[self._numbers[id(rule.key)]]) is not None:
                strictest = max(strictest, rule.strictness)
                for each in _charges(Charged(rule.messages_name, rule.messages), key, 1):
                    charges.setdefault(each.bucket, each)
        return Take(tuple(charges.values()), on_error=STRICTNESS[strictest]) if charges else None

    def max_delays(self, take: Take) -> list[float]:
        """The seconds that a request may wait for each charge of its enforced take; nobody waits for a block to end."""
        delays = self._max_delays
        return [0.0 if isinstance(each, BlockCheck) else delays.get(each.name or "", 0.0) for each in take.charges]

    def _new_takes(self, keys: tuple[str | None, ...], rows: tuple[_Row, ...]) -> tuple[Take, ...]:
        """The enforced take of these keys and rows, if there is one, and one for each rule in shadow."""
        if self._watched:
            self._watch(keys, rows)
        charges: tuple[Charge, ...] = ()
        checks: list[Charge] = []
        shadows: list[Take] = []
        strictest = 0
        for rule, number, charged, cost in rows:
            key = keys[number]
            if key is None:
                continue
            own = _charges(charged, key, cost)
            if rule.shadow:
                seen = {charge.bucket for take in shadows for charge in take.charges}
                new = tuple([charge for charge in own if charge.bucket not in seen])
                longest = 0.0 if has_places([charge.quota for charge in new]) else rule.max_delay  # it would queue
                shadows += [Take(new, longest, on_error=rule.on_error)] if new else ()
            elif own:
                charges += own
                strictest = max(strictest, rule.strictness)
                if rule.penalty is not None:
                    checks.append(BlockCheck(BLOCK, key, CHECK_COST, rule.name, penalty=rule.penalty))
        if not charges:
            return tuple(shadows)
        first: dict[str, Charge] = {}  # two rules may charge one bucket
        for charge in (*charges, *checks):
            first.setdefault(charge.bucket, charge)
        charges = tuple(first.values())
        if self._may_be_too_much:
            try:
                require_few(sum([charge.quota.weight for charge in charges]))
            except ConfigurationError as error:
                self.rules[0].failures.report(self.rules[0].name, "quota", "requests are refused", error)
                raise LimitUnavailable from error
        take: Take = Take.__new__(Take)  # it is known to be right, and not checked again
        take.charges, take.max_wait, take.max_wait_us = charges, 0.0, 0.0
        take.best_effort, take.operation, take.policies, take.on_error = False, None, None, STRICTNESS[strictest]
        return take, *shadows


# All rules of a middleware


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

        If there are rules, newlines at the end of the path are taken out of the scope. Starlette ignores one in most
        routes, but finds another path below a mount, so that an endpoint behind it would be reached past its rules.
        """
        method: str = scope.get("method", "")
        if self._root:
            scope["root_path"] = self._root  # as the app does as soon as it is called
            ways = scope["path"], normalised(scope["path"])
            if ways[0] != ways[1] and not any(each.startswith(f"{self._root}/") for each in ways):
                scope["path"] = self._root + scope["path"]  # or a mount would read it from its start
        path: str = "/" if not self.rules else route_path(scope) if scope.get("root_path") else scope["path"]
        if path[-1:] == "\n":
            path, scope["path"] = path.rstrip("\n"), scope["path"].rstrip("\n")
        is_preflight = method == "OPTIONS" and b"access-control-request-method" in dict(scope["headers"])
        matched = self._matched if len(path) + len(method) > LONGEST_CACHED else self._cached
        return matched(path, method, is_preflight)

    def exempts(self, scope: Scope) -> bool:
        """Whether a rule exempts a request with this scope, which ``plan_for`` has read before."""
        final = self._final(self.rules, route_path(scope), scope.get("method", "").upper())
        return final is not None and not final.quota

    def _matched(self, path: str, method: str, is_preflight: bool) -> Plan | None:
        """The plan of the rules that match: a rule charges the path in any of the ways in which apps read it.

        A CORS preflight, which a browser sends by itself, has only rules that name its method.
        """
        rules = [rule for rule in self.rules if rule.methods or not is_preflight]
        paths, method = readings(path), method.upper()
        final = self._final(rules, path, method)
        matching = [rule for rule in rules if any(rule.matches(each, method) for each in paths)]
        if final is not None:
            matching = [rule for rule in matching if rule is final or rule.shadow]
        elif not is_preflight:
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
