"""Rules as users write them: which requests are charged to which quotas, under which key."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import KW_ONLY, dataclass, fields
from difflib import get_close_matches
from typing import Any

from ...argument_errors import checked_flag, shows_use
from ...decision import OnError, checked_on_error
from ...errors import ConfigurationError
from ...keys import KeyFunction
from ...keys.path_patterns import compile_rule_path
from ...limiter import checked_name
from ...quota_text import QuotaLike, as_quotas
from ..delays import checked_max_delay
from ..functions import (
    CostFunction,
    QuotaFunction,
    SettleFunction,
    checked_cost_or_function,
    checked_key,
    checked_quota,
    takes_bytes,
)
from ..penalties import Penalty, checked_penalty
from ..responses.refusal_answers import OnLimited, checked_on_limited


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
        object.__setattr__(self, "quota", repeatable(self.quota))
        object.__setattr__(self, "messages", repeatable(self.messages))
        try:
            _require_valid(self)
        except ValueError as error:
            error.add_note(f"in {self!r}")
            raise

    def __repr__(self) -> str:
        explicit = [each for each in fields(self)[2:] if getattr(self, each.name) != each.default]
        options = [f"{each.name}={getattr(self, each.name)!r}" for each in explicit]
        return f"Rule({', '.join([repr(self.path), repr(self.quota), *options])})"


def repeatable(quota: Any) -> Any:
    """A quota argument; an iterator, which can be read only once, as a tuple."""
    return tuple(quota) if isinstance(quota, Iterator) else quota


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


_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT")

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
    for method in sorted(named.difference(_METHODS)):  # an app may have methods of its own
        for near in get_close_matches(method, _METHODS, 1, _NEAR):
            raise ConfigurationError(f"{method!r} is not an HTTP method, did you mean {near!r}?: methods=[{near!r}]")
    return frozenset(named | {"HEAD"} if "GET" in named else named)


def as_on_error(on_error: OnError | None) -> OnError | None:
    """One of the three words, or ``None``, which leaves it to the store; ``ConfigurationError`` otherwise."""
    return None if on_error is None else checked_on_error(on_error)
