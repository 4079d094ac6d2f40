"""Rules that are ready to be matched, and what they charge each request."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import lru_cache

from starlette.requests import HTTPConnection
from starlette.types import Scope

from ...decision import OnError, checked_cost
from ...keys import KeyFunction, client_ip
from ...keys.base import UNREADABLE, ScopeKey, key_text
from ...keys.path_patterns import PathPattern
from ...quota_text import RESERVED_NAMES, QuotaLike, as_quotas, parse_quotas
from ...quotas import MAX_UNITS, FixedWindow, Quota, RollingWindow, TokenBucket
from ..functions import CostFunction, Failures, KeyWatch, QuotaFunction, Results, SettleFunction, called_once
from ..penalties import BLOCK, Penalty
from ..responses.refusal_answers import LimitUnavailable, OnLimited
from .rule import Rule

_ANY_PATH = re.compile("")


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
    settles_async: bool = False
    """Whether ``settle`` may have to be awaited."""
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
    def messages_name(self) -> str:
        """The name of the buckets of its messages."""
        return name_of_messages(self.name)

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

    async def evaluate(
        self, connection: HTTPConnection, results: Results
    ) -> tuple[str | None, tuple[Quota, ...] | None, float]:
        """The key, quotas and cost of a connection, after calling the functions of the rule.

        The quotas are ``None`` without a key, and empty if nothing is charged. Raises whatever its quota function
        raises.
        """
        key = await self.evaluate_key(connection, results)
        if key is None:
            return None, None, 0.0
        quotas = self.quota
        if callable(quotas):
            quota = await called_once(quotas, connection, results)
            quotas = () if quota is None else quotas_of(quota)
        cost = await self._cost(connection, results) if quotas else 0.0
        return key, quotas if cost else (), cost

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


def name_of_messages(name: str) -> str:
    """The name of the buckets of messages under a rule of this name."""
    return f"{name} messages"


def message_quotas(rules: Iterable[CompiledRule]) -> Iterator[tuple[str, Quota]]:
    """The quotas for messages, each with its name; a rule in shadow takes nothing from them."""
    for rule in rules:
        for quota in () if rule.shadow else rule.messages:
            yield rule.messages_name, quota


def owned_quotas(rules: Sequence[CompiledRule]) -> Iterator[tuple[str, Quota]]:
    """The quotas to register on a store: ``constant_quotas``, and the quota of blocks for each rule with a penalty."""
    yield from constant_quotas(rules)
    for rule in rules:
        if rule.penalty is not None:
            yield rule.name, BLOCK
