"""Rules: which requests are charged to which quotas, under which key; as users write them, and ready to be matched."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields
from difflib import get_close_matches
from functools import lru_cache

from starlette.requests import HTTPConnection
from starlette.types import Scope

from ..argument_errors import checked_flag, shows_use
from ..decision import OnError, checked_cost, checked_on_error
from ..errors import ConfigurationError
from ..keys import KeyFunction, client_ip
from ..keys.base import UNREADABLE, ScopeKey, key_text
from ..keys.path_patterns import PathPattern, compile_rule_path
from ..limiter import checked_name
from ..quota_text import RESERVED_NAMES, QuotaLike, as_quotas, parse_quotas
from ..quotas import MAX_UNITS, FixedWindow, Quota, RollingWindow, TokenBucket
from .delays import checked_max_delay
from .functions.connection_functions import Results, called_once
from .functions.function_arguments import (
    CostFunction,
    QuotaFunction,
    SettleFunction,
    checked_cost_or_function,
    checked_key,
    checked_quota,
    takes_bytes,
)
from .functions.function_failures import Failures
from .functions.missing_keys import KeyWatch
from .penalties.block_checks import BLOCK
from .penalties.penalty import Penalty, checked_penalty
from .responses.problem_details import LimitUnavailable, OnLimited, checked_on_limited

_ANY_PATH = re.compile("")


@shows_use(
    'Rule("/login", "5/minute", methods=["POST"])',
    limit="did you mean 'quota'?",
    store='which belongs to the middleware, RateLimitMiddleware(app, rules=[...], store="redis://localhost")',
)
@dataclass(frozen=True, slots=True, repr=False)
class Rule:
    """Requests whose path matches ``path``, in Starlette's own syntax, are charged to ``quota``.

    Every rule that matches applies, together with the middleware's own quota, all or nothing. With ``only``, the
    request is charged to this rule alone. With ``quota=None``, it is not charged at all. If several such rules match,
    the first one decides. ``methods`` narrows a rule down to some HTTP methods (GET covers HEAD); only rules that name
    OPTIONS match a CORS preflight. ``key``, ``cost`` and ``on_error`` default to those of the middleware.

    ``quota``, ``key`` and ``cost`` may be functions of the connection, sync or async: a quota of ``None``, a key of
    ``None`` or a cost of exactly 0 means that the rule does not apply. If the key function fails, the client's address
    is the key. If the cost function fails, or returns something that is not a cost, the request costs as much as
    without it. If the quota function fails, ``on_error`` decides: ``"deny"`` answers with 503, anything else lets the
    request through without this rule. ``on_error`` also says what happens without the store; if the rules of a request
    differ, the strictest decides.

    The cost is charged before the app runs. ``settle(status, headers)``, sync or async, may then return the actual
    cost: units charged in excess are given back before the answer is sent, and missing units are debited. With a third
    parameter, it gets the number of bytes that were sent, and is called at the end of the answer, even if that breaks
    off. If no answer starts, because the client has disconnected, the charge stands.

    ``messages`` is a quota for the messages of a WebSocket after its handshake, under the same key: reading pauses, so
    that the peer is slowed down, and if a message would have to wait for more than 5 seconds, the socket is closed with
    1013. ``Rule(path, None, messages="20/s")`` exempts only the handshake.

    With ``max_delay``, in seconds, a request that this rule would refuse waits for its slot instead, if that is no
    further away. So does a handshake. It defaults to the middleware's own; 0.0 refuses at once. Every rule that refuses
    has to allow the wait. A client that goes gives its slot back.

    ``on_limited`` answers the requests that this rule refuses, instead of the middleware's own. A ``penalty`` blocks,
    for this rule, a key that it refuses again and again.

    With ``shadow``, the rule is decided on its own and counted, but never enforced. Rules of one ``name`` share their
    buckets, and a request is charged to each bucket once; by default the buckets belong to the path and the methods.
    Rules of one name have equal quotas or one function, equal penalties, and are all in shadow or all enforced.

    Raises ``QuotaError``, ``ConfigurationError`` or ``ValueError`` for invalid arguments.
    """

    path: str
    quota: QuotaLike | QuotaFunction | None
    _: KW_ONLY
    methods: Collection[str] | None = None
    key: KeyFunction | None = None
    cost: float | CostFunction | None = None
    name: str | None = None
    only: bool = False
    shadow: bool = False
    settle: SettleFunction | None = None
    messages: QuotaLike | None = None
    on_error: OnError | None = None
    penalty: Penalty | None = None
    on_limited: OnLimited | None = None
    max_delay: float | None = None

    def __post_init__(self) -> None:
        if isinstance(self.quota, Iterator):
            object.__setattr__(self, "quota", tuple(self.quota))
        try:
            _require_valid(self)
        except ValueError as error:
            error.add_note(f"in {self!r}")
            raise

    def __repr__(self) -> str:
        given = [each for each in fields(self)[2:] if getattr(self, each.name) != each.default]
        options = [f"{each.name}={getattr(self, each.name)!r}" for each in given]
        return f"Rule({', '.join([repr(self.path), repr(self.quota), *options])})"


def _require_valid(rule: Rule) -> None:
    """Raise ``QuotaError``, ``ConfigurationError`` or ``ValueError`` for a rule that no middleware could apply."""
    compile_rule_path(rule.path, "")
    if rule.quota is not None and not callable(checked_quota(rule.quota)):
        as_quotas(rule.quota)  # type: ignore[arg-type]  # it is no function
    if rule.messages is not None:
        as_quotas(rule.messages)
    if rule.name is not None:
        checked_name(rule.name)
    if rule.key is not None:
        checked_key(rule.key)
    if rule.cost is not None:
        checked_cost_or_function(rule.cost)
    if rule.settle is not None:
        takes_bytes(rule.settle)
    if rule.max_delay is not None:
        checked_max_delay(rule.max_delay)
    if rule.quota is None:
        _require_nothing_of_charges(rule)
    checked_flag("only", rule.only)
    checked_flag("shadow", rule.shadow)
    as_methods(rule.methods)
    as_on_error(rule.on_error)
    checked_penalty(rule.penalty, rule.quota)
    checked_on_limited(rule.on_limited)


def _require_nothing_of_charges(rule: Rule) -> None:
    """Raise ``ConfigurationError`` for a rule that charges nothing, and says how."""
    if rule.max_delay:
        raise ConfigurationError(
            f'max_delay={rule.max_delay!r} without a quota has nothing to wait for: quota="10/s", max_delay=2.0'
        )
    if rule.cost is not None:
        messages = "" if rule.messages is None else ", and a message always costs 1"
        raise ConfigurationError(f'cost={rule.cost!r} without a quota charges nothing{messages}: quota="10/s", cost=5')
    if rule.settle is not None:
        raise ConfigurationError(f'settle={rule.settle!r} without a quota has no charge to settle: quota="10/s"')


@dataclass(slots=True)
class AppliedRule:
    """The charges of a rule for one request: its quotas, if any, under a key, each at the same cost."""

    rule: CompiledRule
    key: str
    quotas: tuple[Quota, ...] = ()
    cost: float = 1


@dataclass(slots=True, eq=False, repr=False)
class CompiledRule:
    """A rule, ready to be matched; a middleware's own quota and a dependency are rules that match every request."""

    name: str
    quota: tuple[Quota, ...] | QuotaFunction
    key: KeyFunction
    cost: float | CostFunction = 1
    _: KW_ONLY
    source: Rule | None = None
    """The ``Rule`` that the user wrote, if it was one."""
    pattern: PathPattern = _ANY_PATH
    methods: frozenset[str] | None = None
    is_final: bool = False
    """Whether no other rule is enforced if this one matches."""
    shadow: bool = False
    on_error: OnError | None = None
    penalty: Penalty | None = None
    messages: tuple[Quota, ...] = ()
    """Quotas for each message of a WebSocket."""
    settle: SettleFunction | None = None
    on_limited: OnLimited | None = None
    max_delay: float = 0.0
    """The seconds that a request may wait for its quotas instead of being refused."""
    settles_by_bytes: bool = False
    """Whether ``settle`` takes the number of bytes that were sent."""
    base_cost: float = 1
    """The cost if the cost function fails."""
    fallback: ScopeKey = field(default_factory=client_ip)
    """The key if the key function fails: the client's address."""
    failures: Failures = field(default_factory=Failures)
    """Failures of its functions are reported here."""
    key_watch: KeyWatch = field(default_factory=KeyWatch)
    """Whether a key has ever come."""

    def __repr__(self) -> str:
        return f"CompiledRule({self.name!r}, {self.quota!r})" if self.source is None else repr(self.source)

    @property
    def path(self) -> str:
        """The path that it matches, in Starlette's syntax."""
        return "/{path:path}" if self.source is None else self.source.path

    @property
    def is_exemption(self) -> bool:
        """Whether it charges nothing."""
        return not self.quota and not self.messages

    @property
    def is_constant(self) -> bool:
        """Whether only its key depends on the request, and is read from the scope."""
        return isinstance(self.key, ScopeKey) and not callable(self.quota) and not callable(self.cost)

    def matches(self, path: str, method: str) -> bool:
        """Whether it applies to requests of this method for this path."""
        return (self.methods is None or method in self.methods) and self.pattern.match(path) is not None

    def apply(self, key: str | None) -> AppliedRule | None:
        """The charges of a constant rule under this key; ``None`` without one."""
        assert not callable(self.quota)
        assert not callable(self.cost)
        return None if key is None else AppliedRule(self, key, self.quota, self.cost)

    def key_of(self, scope: Scope) -> str | None:
        """The key of a request with this scope under a constant rule; the client's address if the key fails."""
        try:
            return self.key.of(scope)  # type: ignore[attr-defined, no-any-return]  # it is a ScopeKey
        except Exception as error:  # noqa: BLE001  # an object of the app's may do anything
            return self._address(scope, error)

    def watch(self, key: str | None) -> None:
        """Take note of the key of a request, until the first one has come."""
        if not self.key_watch.is_over:
            self.key_watch.see(key, self.name, self.key)

    async def evaluate(self, connection: HTTPConnection, results: Results) -> AppliedRule | None:
        """The charges of the rule, after calling its functions; ``None`` without a key.

        Raises whatever its quota function raises.
        """
        key = await self.evaluate_key(connection, results)
        if key is None:
            return None
        quota = await called_once(self.quota, connection, results) if callable(self.quota) else self.quota
        if quota is None:
            return AppliedRule(self, key)
        quotas = quotas_of(quota) if callable(self.quota) else quota
        cost = await self._cost(connection, results)
        return AppliedRule(self, key, quotas, cost) if cost else AppliedRule(self, key)

    async def evaluate_key(self, connection: HTTPConnection, results: Results) -> str | None:
        """The key of a connection; the client's address if the key function fails."""
        if isinstance(self.key, ScopeKey):
            key = self.key_of(connection.scope)
        else:
            key = await self._called_key(connection, results)
        if not self.key_watch.is_over:
            self.watch(key)
        return key

    async def _called_key(self, connection: HTTPConnection, results: Results) -> str | None:
        try:
            returned = await called_once(self.key, connection, results)
            return None if returned is None else key_text(returned)
        except Exception as error:  # noqa: BLE001  # a function of the user's, which may raise whatever it likes
            return self._address(connection.scope, error)

    def _address(self, scope: Scope, error: Exception) -> str | None:
        self.failures.report(self.name, "key", "the client's address is the key", error)
        try:
            return self.fallback.of(scope)
        except Exception:  # noqa: BLE001  # a server that reports nonsense as the client's address
            return UNREADABLE

    async def _cost(self, connection: HTTPConnection, results: Results) -> float:
        """The cost of a connection; the base cost if the cost function fails, or returns no valid cost."""
        if not callable(self.cost):
            return self.cost
        try:
            return as_units(await called_once(self.cost, connection, results))
        except Exception as error:  # noqa: BLE001  # as above
            self.failures.report(self.name, "cost", f"the request costs {self.base_cost:g}", error)
            return self.base_cost

    def fail(self, error: Exception) -> None:
        """Report that the quota function failed; raise ``LimitUnavailable`` if nobody may pass then."""
        refuses = self.on_error == "deny" and not self.shadow
        outcome = "refused" if refuses else "let through without it"
        self.failures.report(self.name, "quota", f"requests are {outcome}", error)
        if refuses:
            raise LimitUnavailable from error

    def fail_to_settle(self, error: Exception) -> None:
        """Report that the settle function of this rule has failed."""
        self.failures.report(self.name, "settle", "requests stay charged as they were", error)


def as_units(cost: float) -> float:
    """The result of a cost function as a plain number; ``ValueError`` for anything that is not a cost.

    0 exempts. A number that is too large becomes the largest cost, which no quota ever grants.
    """
    if isinstance(cost, bool) or not hasattr(type(cost), "__float__"):
        raise ValueError(f"a cost is a number from 0 up, not {cost!r}: cost=lambda request: 5")
    if cost == 0:
        return 0.0
    units = min(cost, MAX_UNITS)
    return checked_cost(units if type(units) in (int, float) else float(units))


def quotas_of(quota: QuotaLike) -> tuple[Quota, ...]:
    """``as_quotas``, but fast for the values that a function returns again and again."""
    if isinstance(quota, str):
        return _parsed(quota)
    is_one = isinstance(quota, (TokenBucket, FixedWindow, RollingWindow)) and quota.name not in RESERVED_NAMES
    return (quota,) if is_one else as_quotas(quota)  # type: ignore[return-value]  # it is a quota


_parsed = lru_cache(maxsize=1024)(lambda text: as_quotas(parse_quotas(text)))


def constant_quotas(rules: Iterable[CompiledRule]) -> Iterator[tuple[str, Quota]]:
    """The quotas of rules, except those that functions return, each with the name of its rule."""
    for rule in rules:
        for quota in () if callable(rule.quota) else rule.quota:
            yield rule.name, quota


def owned_quotas(rules: Sequence[CompiledRule]) -> Iterator[tuple[str, Quota]]:
    """The quotas to register on a store: ``constant_quotas``, and the quota of blocks for each rule with a penalty."""
    yield from constant_quotas(rules)
    for rule in rules:
        if rule.penalty is not None:
            yield rule.name, BLOCK


METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT")

_METHOD = re.compile("[A-Za-z]+(-[A-Za-z]+)*")

_NEAR = 0.75
"""How alike a mistyped method and the right one are, at the least, by ``difflib``."""


def as_methods(methods: Collection[str] | None) -> frozenset[str] | None:
    """The methods of a rule in capitals, HEAD along with GET; ``ConfigurationError`` for anything else."""
    if methods is None:
        return None
    is_list = isinstance(methods, Collection) and not isinstance(methods, str)
    if not (is_list and methods and all(isinstance(each, str) and _METHOD.fullmatch(each) for each in methods)):
        raise ConfigurationError(f'methods is a list of HTTP methods, not {methods!r}: methods=["GET", "POST"]')
    named = {method.upper() for method in methods}
    for method in sorted(named.difference(METHODS)):  # an app may have methods of its own
        for near in get_close_matches(method, METHODS, 1, _NEAR):
            raise ConfigurationError(f"{method!r} is not an HTTP method, did you mean {near!r}?: methods=[{near!r}]")
    return frozenset(named | {"HEAD"} if "GET" in named else named)


def as_on_error(on_error: OnError | None) -> OnError | None:
    """One of the three words, or ``None``, which leaves it to the store; ``ConfigurationError`` otherwise."""
    return None if on_error is None else checked_on_error(on_error)
