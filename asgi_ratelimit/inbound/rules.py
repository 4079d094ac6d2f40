"""Rules: which requests are charged to which quotas, under which key; as users write them, and ready to be matched."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from dataclasses import KW_ONLY, dataclass, field, fields
from functools import lru_cache
from typing import Any, TypeAlias

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection

from ..buckets import as_key
from ..decision import OnError, checked_cost, checked_on_error
from ..errors import ConfigurationError
from ..keys.base import KeyFunction, ScopeKey
from ..keys.path_patterns import PathPattern
from ..quota_text import QuotaLike, as_quotas, parse_quotas
from ..quotas import FixedWindow, Quota, RollingWindow, TokenBucket
from .answers.responses import LimitUnavailable, OnLimited
from .penalties.penalty import Penalty

QuotaFunction: TypeAlias = Callable[[HTTPConnection], "QuotaLike | Awaitable[QuotaLike | None] | None"]
"""The quota of a connection, ``None`` for no limit."""

CostFunction: TypeAlias = Callable[[HTTPConnection], "float | Awaitable[float]"]
"""The cost of a connection in units, 0 for nothing."""

SettleFunction: TypeAlias = (
    Callable[[int, Headers], "float | Awaitable[float | None] | None"]
    | Callable[[int, Headers, int], "float | Awaitable[float | None] | None"]
)
"""The actual cost in units by status and headers of the answer, and the bytes of its body; ``None``: as charged."""

Results: TypeAlias = dict[int, Any]
"""What functions have returned for one request, by their identity: each is called once."""

_ANY_PATH = re.compile("")

logger = logging.getLogger("asgi_ratelimit")


@dataclass(frozen=True, slots=True, repr=False)
class Rule:
    """Requests whose path matches ``path``, in Starlette's own syntax, are charged to ``quota``.

    Every rule that matches applies, together with the middleware's own quota, all or nothing. With ``only`` the
    request is charged to this rule alone; with ``quota=None`` to nothing at all; where several such rules match, the
    first one decides. ``methods`` narrows a rule down to some HTTP methods (GET covers HEAD); a CORS preflight meets
    only rules that name OPTIONS. ``key``, ``cost`` and ``on_error`` are the middleware's own unless given.

    ``quota``, ``key`` and ``cost`` may be functions of the connection, sync or async: a quota of ``None``, a key of
    ``None`` or a cost of 0 means that the rule does not apply. A function that raises is logged once, and
    ``on_error`` decides: ``"deny"`` answers with 503, all else lets the request through without this rule.
    ``on_error`` also says what happens without the store; where the rules of a request differ, the strictest decides.

    The cost is charged before the app runs. ``settle(status, headers)``, sync or async, may then say what it really
    came to: less is given back before the answer is sent, more is debited. With a third parameter it gets the number
    of bytes that were sent, and is called at the end of the answer, also where that breaks off. Where no answer
    starts, because the client has disconnected, the charge stands.

    ``messages`` is a quota for the messages of a WebSocket after its handshake, under the same key: reading pauses,
    so that the peer is slowed down, and where a message would have to wait for more than 5 seconds, the socket is
    closed with 1013. ``Rule(path, None, messages="20/s")`` exempts the handshake alone.

    ``on_limited`` answers what this rule refuses, in place of the middleware's own. A ``penalty`` blocks, for this
    rule, a key that it refuses again and again.

    With ``shadow`` the rule is decided by itself and counted, and never enforced. Rules of one ``name`` share their
    buckets, and a request is charged to each bucket once; by default the buckets belong to the path and the methods.
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

    def __repr__(self) -> str:
        given = [each for each in fields(self)[2:] if getattr(self, each.name) != each.default]
        options = [f"{each.name}={getattr(self, each.name)!r}" for each in given]
        return f"Rule({', '.join([repr(self.path), repr(self.quota), *options])})"


@dataclass(slots=True)
class AppliedRule:
    """What a rule charges one request: its quotas, if any, under a key, each at the same cost."""

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
    """What the user wrote, if it was a ``Rule``."""
    pattern: PathPattern = _ANY_PATH
    methods: frozenset[str] | None = None
    is_final: bool = False
    """Whether no other rule is enforced where this one matches."""
    shadow: bool = False
    on_error: OnError | None = None
    penalty: Penalty | None = None
    messages: tuple[Quota, ...] = ()
    """Quotas for each message of a WebSocket."""
    settle: SettleFunction | None = None
    on_limited: OnLimited | None = None
    settles_by_bytes: bool = False
    """Whether ``settle`` takes the number of bytes that were sent."""
    has_failed: bool = field(init=False, default=False)
    """Whether one of its functions has failed, which is logged once."""

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
        """Whether only its key depends on the request, and that is read off the scope."""
        return isinstance(self.key, ScopeKey) and not callable(self.quota) and not callable(self.cost)

    def matches(self, path: str, method: str) -> bool:
        """Whether it applies to requests of this method for this path."""
        return (self.methods is None or method in self.methods) and self.pattern.match(path) is not None

    def apply(self, key: str | None) -> AppliedRule | None:
        """What a constant rule charges under this key; ``None`` without one."""
        assert not callable(self.quota)
        assert not callable(self.cost)
        return None if key is None else AppliedRule(self, key, self.quota, self.cost)

    async def evaluate(self, connection: HTTPConnection, results: Results) -> AppliedRule | None:
        """What the rule charges, after calling its functions; ``None`` without a key. Raises whatever they raise."""
        key = await _call(self.key, connection, results)
        if key is None:
            return None
        quota = await _call(self.quota, connection, results) if callable(self.quota) else self.quota
        cost = await _call(self.cost, connection, results) if callable(self.cost) else self.cost
        if quota is None or cost == 0:
            return AppliedRule(self, as_key(key))
        return AppliedRule(self, as_key(key), quotas_of(quota) if callable(self.quota) else quota, _units(cost))

    def fail(self, error: Exception) -> None:
        """Log once that a function of this rule has failed; raises ``LimitUnavailable`` where nobody may pass then."""
        outcome = "refused" if self.on_error == "deny" else "let through without it"
        self._log_once(f"requests are {outcome}", error)
        if self.on_error == "deny":
            raise LimitUnavailable from error

    def fail_to_settle(self, error: Exception) -> None:
        """Log once that the settle function of this rule has failed."""
        self._log_once("requests stay charged as they were", error)

    def _log_once(self, outcome: str, error: Exception) -> None:
        if not self.has_failed:
            self.has_failed = True
            logger.error("a function of the rule %r failed, %s: %r", self.name, outcome, error, exc_info=error)


async def _call(function: Any, connection: HTTPConnection, results: Results) -> Any:
    identity = id(function)
    if identity not in results:
        result = function(connection)
        results[identity] = await result if inspect.isawaitable(result) else result
    return results[identity]


def _units(cost: float) -> float:
    """A cost as a plain number, whatever kind of number a function has returned."""
    return checked_cost(cost) if type(cost) in (int, float) else float(checked_cost(cost))


def quotas_of(quota: QuotaLike) -> tuple[Quota, ...]:
    """``as_quotas``, fast for what a function returns again and again."""
    if isinstance(quota, str):
        return _parsed(quota)
    return (quota,) if isinstance(quota, (TokenBucket, FixedWindow, RollingWindow)) else as_quotas(quota)


_parsed = lru_cache(maxsize=1024)(lambda text: as_quotas(parse_quotas(text)))


def constant_quotas(rules: Iterable[CompiledRule]) -> Iterator[tuple[str, Quota]]:
    """The quotas of rules, each with the name of its rule, without those that functions return."""
    for rule in rules:
        for quota in () if callable(rule.quota) else rule.quota:
            yield rule.name, quota


def require_agreement(rules: Iterable[CompiledRule]) -> None:
    """Rules of one name share buckets, so quotas of one name in them must be equal."""
    quotas: dict[tuple[str, str], Quota] = {}
    for name, quota in constant_quotas(rules):
        other = quotas.setdefault((name, quota.name), quota)
        if other != quota:
            raise ConfigurationError(
                f"two rules named {name!r} have different quotas named {quota.name!r}, {other!r} and "
                f'{quota!r}, and would share a bucket: give one of them another name, Rule(..., name="uploads")'
            )


def takes_bytes(settle: SettleFunction) -> bool:
    """Whether a settle function takes the bytes of an answer; ``ConfigurationError`` for what is no such function."""
    count = _count_of_parameters(settle) if callable(settle) else 0
    if 2 <= count <= 3:
        return count == 3
    raise ConfigurationError(
        f"settle is a function of the status and the headers, and, optionally, of the bytes sent, not {settle!r}: "
        "settle=lambda status, headers: 0 if status < 400 else 1"
    )


def _count_of_parameters(function: Callable[..., object]) -> int:
    """How many arguments a function takes by position; those with a default do not count."""
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    return sum(each.kind in positional and each.default is inspect.Parameter.empty for each in parameters)


def as_methods(methods: Collection[str] | None) -> frozenset[str] | None:
    """The methods of a rule in capitals, HEAD along with GET; ``ConfigurationError`` for what is no list of them."""
    if methods is None:
        return None
    if isinstance(methods, str) or not methods:
        raise ConfigurationError(f'methods is a list of HTTP methods, not {methods!r}: methods=["GET", "POST"]')
    named = {method.upper() for method in methods}
    return frozenset(named | {"HEAD"} if "GET" in named else named)


def as_cost(cost: float | CostFunction) -> float | CostFunction:
    """A cost, or a function of it; ``ValueError`` for anything else."""
    return cost if callable(cost) else checked_cost(cost)


def as_on_error(on_error: OnError | None) -> OnError | None:
    """One of the three words, or ``None``, which leaves it to the store; ``ConfigurationError`` otherwise."""
    return None if on_error is None else checked_on_error(on_error)
