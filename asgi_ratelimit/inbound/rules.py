"""Rules: as users write them, and compiled: ready to be matched, with what they charge worked out beforehand."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from decimal import Decimal
from functools import lru_cache
from inspect import iscoroutinefunction, isfunction
from numbers import Real
from typing import Any

from starlette.requests import HTTPConnection
from starlette.types import Scope

from ..buckets import bucket_prefix
from ..decision import OnError, checked_cost, checked_on_error
from ..errors import ConfigurationError, checked_flag, checked_name, require_number, shows_use
from ..keys import KeyFunction, client_ip
from ..keys.base import UNREADABLE, KeyWatch, ScopeKey, bind, called, own_text
from ..keys.path_patterns import compile_rule_path
from ..logs import warn_once
from ..overrides import OFF, SHADOW, Override, limit_text, quotas_under
from ..quota_text import QuotaLike, as_quotas, as_text, readable
from ..quotas import MAX_PERIOD, MAX_UNITS, InFlight, Quota, has_places
from . import user_functions
from .penalties import BLOCK, Penalty, require_penalty
from .refusals import LimitUnavailable, OnLimited, checked_on_limited
from .user_functions import CostFunction, Failures, QuotaFunction, Results, SettleFunction

_ANY_PATH = re.compile("")

# From the mildest to the strictest; `None` leaves it to the store
STRICTNESS: tuple[OnError | None, ...] = ("allow", None, "local", "deny")


class Charged:
    """Quotas that are charged under one name, each with the start of its buckets' texts, up to the key."""

    __slots__ = ("name", "quotas")

    def __init__(self, name: str, quotas: Iterable[Quota]) -> None:
        self.name = name
        self.quotas = [(quota, bucket_prefix(name, quota.name, quota.kind) + "{") for quota in quotas]


NOTHING = Charged("", ())


@shows_use('Rule("/login", "5/minute", methods=["POST"])')
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
    without it. If the quota function fails, the middleware's own quota applies instead, if that is no function; without
    one, or with an ``on_error`` of ``"deny"``, the request is answered with 503, and with ``"allow"`` it passes without
    this rule. ``on_error`` also says what happens without the store; if the rules of a request differ, the strictest
    decides.

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

    A quota such as ``"5 at once"`` counts requests until their answers have ended. Nobody knows when that will be, so
    who is refused is told to come back after ``retry_after`` seconds, by default 1.

    ``on_limited`` answers the requests that this rule refuses, instead of the middleware's own. A ``penalty`` blocks,
    for this rule, a key that it refuses again and again.

    With ``shadow``, the rule is decided on its own and counted, but never enforced. Rules of one ``name`` share their
    buckets, and a request is charged to each bucket once; by default the buckets belong to the path and the methods.
    Rules of one name have equal quotas or one function, equal penalties if any, and are all in shadow or all enforced.

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
    retry_after: float | None = None

    def __post_init__(self) -> None:
        is_for_some = self.key is not None and self.messages is None
        if self.quota is None and (self.cost or self.settle or self.max_delay or self.retry_after or is_for_some):
            raise ConfigurationError(f'{self!r} charges nothing: Rule({self.path!r}, "10/s", cost=3), allow=')
        _TRIAL.compiled_rule(self, "trial", "", None)

    def __repr__(self) -> str:
        explicit = [each for each in fields(self)[2:] if getattr(self, each.name) != each.default]
        options = [f"{each.name}={getattr(self, each.name)!r}" for each in explicit]
        return f"Rule({', '.join([repr(self.path), repr(self.quota), *options])})"


_METHOD = re.compile("[A-Za-z]+(-[A-Za-z]+)*")


def as_methods(methods: Collection[str] | None, is_for_messages: bool = False) -> frozenset[str] | None:
    """The methods of a rule in capitals, HEAD along with GET; ``ConfigurationError`` for anything else.

    A rule for messages alone is for handshakes, whose method is empty.
    """
    if methods is None:
        return frozenset({""}) if is_for_messages else None
    is_list = isinstance(methods, Collection) and not isinstance(methods, str)
    if not is_list or not methods or not all(isinstance(each, str) and _METHOD.fullmatch(each) for each in methods):
        raise ConfigurationError(f'methods is a list of HTTP methods, not {methods!r}: methods=["GET", "POST"]')
    named = {method.upper() for method in methods}
    return frozenset(named | {"HEAD"} if "GET" in named else named)


# The options of a ``Rule`` that its compiled rule takes over as they are, if they are set
_AS_WRITTEN = ("cost", "max_delay", "on_error", "on_limited", "retry_after", "settle")


@dataclass(slots=True, eq=False, repr=False)
class CompiledRule:
    """A rule, ready to be matched; a middleware's own quota and a dependency are rules that match every request.

    Raises ``QuotaError``, ``ConfigurationError`` or ``ValueError`` for invalid values.
    """

    name: str
    quota: tuple[Quota, ...] | QuotaFunction
    key: KeyFunction
    cost: float | CostFunction = 1
    _: KW_ONLY
    source: Rule | None = None  # the `Rule` that the user wrote, if it was one
    pattern: re.Pattern[str] = _ANY_PATH
    methods: frozenset[str] | None = None
    is_final: bool = False  # whether no other rule is enforced if this one matches
    shadow: bool = False
    on_error: OnError | None = None
    penalty: Penalty | None = None
    messages: tuple[Quota, ...] = ()  # quotas for each message of a WebSocket
    settle: SettleFunction | None = None
    on_limited: OnLimited | None = None
    retry_after: float | None = None  # what its quotas of requests in flight tell who is refused, in seconds
    max_delay: float = 0.0  # the seconds that a request may wait for its quotas instead of being refused
    base_cost: float = 1  # the cost if the cost function fails: that of the middleware, if that is no function
    fallback: ScopeKey = field(default_factory=client_ip)  # the key if the key function fails: the client's address
    instead: CompiledRule | None = None  # the middleware's own quota, which applies if the quota function fails
    failures: Failures = field(default_factory=Failures)  # failures of its functions are reported here
    key_watch: KeyWatch = field(default_factory=KeyWatch)  # whether a key has ever come

    charged: Charged = field(init=False)  # what it charges, if its quota is no function
    has_functions: bool = field(init=False)  # whether its quota or its cost is a function
    reads_scope: bool = field(init=False)  # whether its key is read from the scope, without a call of the program
    strictness: int = field(init=False)  # how strict its `on_error` is
    settles_by_bytes: bool = field(init=False)  # whether `settle` takes the number of bytes that were sent
    settles_at_once: bool = field(init=False)  # whether `settle` is sure to need no `await`

    def __post_init__(self) -> None:
        checked_name(self.name)
        user_functions.checked_key(self.key)
        checked_flag("shadow", self.shadow)
        checked_on_limited(self.on_limited)
        if callable(self.cost):
            user_functions.require_function("cost", self.cost, 1, "cost=lambda request: 5")
        else:
            self.cost = self.base_cost = checked_cost(self.cost)
        what = "max_delay must be seconds from 0 to 400 days"
        self.max_delay = float(require_number(what, self.max_delay, 0, MAX_PERIOD, "max_delay=2.0"))
        if self.on_error is not None:
            checked_on_error(self.on_error)
        if not callable(self.quota) and self.retry_after is not None:
            self.quota = _with_retry_after(self.quota, self.retry_after)
        self.charged = Charged(self.name, self.constant_quotas)
        self.has_functions = callable(self.quota) or callable(self.cost)
        self.reads_scope = isinstance(self.key, ScopeKey)
        self.strictness = STRICTNESS.index(self.on_error)
        self.settles_by_bytes = self.settle is not None and user_functions.takes_bytes(self.settle)
        self.settles_at_once = isfunction(self.settle) and not iscoroutinefunction(self.settle)

    def __repr__(self) -> str:
        return f"the quota of {self.name!r}" if self.source is None else repr(self.source)

    @property
    def path(self) -> str:
        """The path that it matches, in Starlette's syntax."""
        return "/{path:path}" if self.source is None else self.source.path

    @property
    def constant_quotas(self) -> tuple[Quota, ...]:
        """Its quotas, unless a function returns them."""
        return () if callable(self.quota) else self.quota

    @property
    def messages_name(self) -> str:
        """The name of the buckets of its messages."""
        return f"{self.name} messages"

    @property
    def is_exemption(self) -> bool:
        """Whether it charges nothing."""
        return not self.quota and not self.messages

    def matches(self, path: str, method: str) -> bool:
        """Whether it applies to requests of this method for this path."""
        return (self.methods is None or method in self.methods) and self.pattern.match(path) is not None

    async def key_of(self, connection: HTTPConnection) -> str | None:
        """The key of a connection; the client's address if the key function fails."""
        try:
            return own_text(await called(self.key, connection))
        except Exception as error:  # noqa: BLE001  # a function of the user's, which may raise whatever it likes
            return self.address(connection.scope, error)

    def address(self, scope: Scope, error: Exception) -> str | None:
        """The key after the key function has failed: the client's address, in a text that no other key has.

        Clients without an address share a bucket: who can make the function fail must gain nothing.
        """
        self.failures.report(self.name, "key", "the client's address is the key", error)
        try:
            address = self.fallback.of(scope)
        except Exception:  # noqa: BLE001  # a server that reports nonsense as the client's address
            address = UNREADABLE
        return f"\0{address or ''}"

    async def charges(self, connection: HTTPConnection, results: Results) -> tuple[Charged, float]:
        """What it charges a connection, and the cost of each, after its functions were called.

        A cost function that fails costs the base cost. Raises whatever the quota function raises.
        """
        charged, cost = self.charged, self.cost
        if callable(self.quota):
            quota = await user_functions.called_once(self.quota, connection, results)
            if quota is None:
                return NOTHING, 0.0
            charged = _charged_under(self.name, quota if type(quota) is str else as_quotas(quota), self.retry_after)
        if callable(cost):
            try:
                cost = as_units(await user_functions.called_once(cost, connection, results))
            except Exception as error:  # noqa: BLE001  # as above
                self.failures.report(self.name, "cost", f"the request costs {self.base_cost:g}", error)
                cost = self.base_cost
        return (charged, cost) if cost else (NOTHING, 0.0)

    def without_quota(self, error: Exception) -> CompiledRule | None:
        """Report that the quota function has failed; the rule that applies instead, ``None`` if the request passes.

        Raises ``LimitUnavailable`` if nobody may pass then.
        """
        passes = self.shadow or self.on_error == "allow"
        instead = None if passes or self.on_error == "deny" else self.instead
        outcome = "refused" if instead is None else f"limited by {instead.name!r} instead"
        outcome = "let through without it" if passes else outcome
        self.failures.report(self.name, "quota", f"requests are {outcome}", error)
        if not passes and instead is None:
            raise LimitUnavailable from error
        return instead

    def limiting(self, quota: QuotaLike | QuotaFunction | None, penalty: Penalty | None, **more: Any) -> CompiledRule:
        """A rule with this quota, this penalty and these values, and else with those of this one."""
        require_penalty(penalty, quota)
        quotas, retry_after = user_functions.checked_quotas(quota), more.get("retry_after")
        if retry_after is not None and not (callable(quotas) or has_places(quotas)):
            problem = f"retry_after={retry_after!r} is for a quota of requests at once; a rate knows its own"
            raise ConfigurationError(f'{problem}: Rule("/export", "5 at once", retry_after=10)')
        return replace(self, quota=quotas, penalty=penalty, key_watch=KeyWatch(), **more)

    def compiled_rule(self, rule: Rule, name: str, root: str, instead: CompiledRule | None) -> CompiledRule:
        """A rule of the user's under this name, for an app that sets this root path by itself.

        ``instead`` applies if its quota function fails. Errors have a note that quotes the rule.
        """
        try:
            return self.limiting(
                rule.quota,
                rule.penalty,
                name=name if rule.name is None else rule.name,
                key=bind(self.key if rule.key is None else rule.key, rule.path, root),
                source=rule,
                pattern=compile_rule_path(rule.path, root)[0],
                methods=as_methods(rule.methods, rule.quota is None and rule.messages is not None),
                is_final=(checked_flag("only", rule.only) or rule.quota is None) and not rule.shadow,
                messages=() if rule.messages is None else _rates(rule.messages),
                instead=instead,
                shadow=rule.shadow,
                **{each: value for each in _AS_WRITTEN if (value := getattr(rule, each)) is not None},
            )
        except ValueError as error:
            error.add_note(f"in {rule!r}")
            raise


def _with_retry_after(quotas: tuple[Quota, ...], seconds: float) -> tuple[Quota, ...]:
    """The quotas, of which those of requests in flight tell who is refused to come back after so many seconds."""
    return tuple([replace(each, retry_after=seconds) if isinstance(each, InFlight) else each for each in quotas])


def _rates(messages: QuotaLike) -> tuple[Quota, ...]:
    """The quotas of messages; ``ConfigurationError`` for one of requests in flight."""
    quotas = as_quotas(messages)
    if has_places(quotas):
        raise ConfigurationError(f'messages have a rate, and are never at once, not {messages!r}: messages="20/s"')
    return quotas


@lru_cache(maxsize=1024)
def _charged_under(name: str, quotas: str | tuple[Quota, ...], retry_after: float | None) -> Charged:
    """What a rule of this name charges under quotas that a function has returned."""
    own = as_quotas(quotas)
    return Charged(name, own if retry_after is None else _with_retry_after(own, retry_after))


def as_units(cost: float) -> float:
    """The result of a cost function as a plain number; ``ValueError`` for anything that is not a cost.

    0 exempts. A number that is too large becomes the largest cost, which no quota ever grants.
    """
    if isinstance(cost, bool) or not isinstance(cost, (Real, Decimal)):
        raise ValueError(f"a cost is a number from 0 up, not {cost!r}: cost=lambda request: 5")
    return 0.0 if cost == 0 else checked_cost(min(cost, MAX_UNITS))


_TRIAL = CompiledRule("trial", (), client_ip())  # what a rule is compiled with to check it as soon as it is written


def checked_rules(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """The rules of a middleware; ``ConfigurationError`` for anything else."""
    listed = tuple(rules) if isinstance(rules, Iterable) else rules
    if isinstance(listed, tuple) and all(isinstance(rule, Rule) for rule in listed):
        return listed
    raise ConfigurationError(f'rules are a list of Rule, not {listed!r}: rules=[Rule("/login", "3/minute")]')


def under_overrides(
    rules: Iterable[CompiledRule], overrides: Mapping[str, Override], *, may_hold: bool = True
) -> list[CompiledRule]:
    """The rules under the overrides of their names.

    With ``may_hold``, an override may be one of requests at once even if its rule is not.
    """
    return [overridden(rule, overrides[rule.name], may_hold) if rule.name in overrides else rule for rule in rules]


def overridden(rule: CompiledRule, override: Override, may_hold: bool) -> CompiledRule:
    """A rule under the override of its name. A rule that decides alone also decides alone under the override."""
    if override.word == OFF:
        return replace(rule, quota=(), messages=())
    if override.word == SHADOW:
        return replace(rule, shadow=True)
    quotas = quotas_under(override, rule.constant_quotas)
    if has_places(quotas) and not (may_hold or has_places(rule.constant_quotas)):
        problem = f'the override "{as_text(quotas)}" of {rule.name!r} needs the end of the answer, and was not applied'
        warn_once("an-override-that-does-not-apply", f"{problem}: app.add_middleware(RateLimitMiddleware)")
        return rule
    return replace(rule, quota=quotas)


def message_quotas(rules: Iterable[CompiledRule]) -> list[tuple[str, Quota]]:
    """The quotas for messages, each with its name; a rule in shadow takes nothing from them."""
    return [(rule.messages_name, quota) for rule in rules if not rule.shadow for quota in rule.messages]


def owned_quotas(rules: Iterable[CompiledRule]) -> Iterator[tuple[str, Quota]]:
    """The quotas to register on a store, each with the name of its rule; a penalty has that of blocks."""
    for rule in rules:
        for quota in (*rule.constant_quotas, *([BLOCK] if rule.penalty else [])):
            yield rule.name, quota


# Rules of one name share their buckets: none may switch off or use up the limit of another


def require_agreement(rules: Iterable[CompiledRule]) -> None:
    """Raise ``ConfigurationError`` for rules of one name that differ in what they do to the buckets they share.

    Their quotas of one name must be equal, or come from one function; so must their penalties. They are all enforced,
    or all in shadow. Messages of a rule have a name of their own.
    """
    seen: dict[tuple[str, str], tuple[object, str]] = {}
    for rule in rules:
        quotas = [*[(rule.name, quota) for quota in rule.constant_quotas], *message_quotas([rule])]
        shared: list[Any] = [(name, f"quotas named {quota.name!r}", quota, readable(quota)) for name, quota in quotas]
        if rule.quota:
            shared.append((rule.name, "quotas", rule.quota if callable(rule.quota) else None, limit_text(rule.quota)))
            shared.append((rule.name, "effects", rule.shadow, f"shadow={rule.shadow}"))
        if rule.penalty is not None:
            shared.append((rule.name, "penalties", rule.penalty, repr(rule.penalty)))
        for name, what, value, text in shared:
            other, other_text = seen.setdefault((name, what), (value, text))
            if other != value:
                both = f"two rules named {name!r} have different {what}, {other_text} and {text}"
                raise ConfigurationError(f'{both}, and would share a bucket: name one Rule(..., name="uploads")')
