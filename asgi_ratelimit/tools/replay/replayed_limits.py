"""The limits for a replay: each rule is one text, such as ``"POST /login 5/minute"``.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from starlette.types import Scope

from ...buckets import DEFAULT_NAME
from ...errors import ConfigurationError, QuotaError
from ...inbound import Rule
from ...inbound.config import USUAL, LimitsFile
from ...inbound.functions.function_failures import Failures
from ...inbound.plan import Plan
from ...inbound.rule_table import Defaults, RuleTable
from ...inbound.rules import CompiledRule
from ...keys.addresses import client_key, parse_address
from ...keys.base import PathKey, ScopeKey
from ...quota_text import QuotaLike, parse_quotas
from ...quotas import Quota
from ..logs import LoggedRequest

EXAMPLES = '"/login 5/minute", "POST /orders/{id} 10/s burst 20", "/health exempt"'

_EXEMPT = "exempt"
IPV6_PREFIX = 64
"""Bits of an IPv6 address that count, as in ``client_ip()``."""


class LoggedKey(ScopeKey):
    """The key of a request as it is in a log; an IPv6 address counts for its network, as in ``client_ip()``."""

    def of(self, scope: Scope) -> str | None:
        """The key of the request with this scope."""
        key: str = scope["client"][0]
        if ":" in key and (key.count(":") > 1 or key[0].isdecimal()):  # some logs also have the port of IPv4
            packed = parse_address(key)
            return key if packed is None else client_key(packed, IPV6_PREFIX)
        return key or None


LOGGED_KEY = LoggedKey()


def scope_of(request: LoggedRequest) -> Scope:
    """The scope of a request of a log."""
    _, key, method, path, _ = request
    return {
        "type": "http",
        "method": method,
        "path": path,
        "client": (key, 0),
        "headers": [],
        "root_path": "",
        "query_string": b"",
    }


@dataclass(slots=True)
class Limits:
    """The limits of a log: a table of rules for requests, and plans by the names of rules for recorded decisions."""

    table: RuleTable
    own: Plan | None = None
    """The plan of recorded decisions of all rules except those of ``by_name``."""
    by_name: dict[str, Plan | None] = field(default_factory=dict)

    @property
    def rules(self) -> list[CompiledRule]:
        """All rules that charge anything."""
        plans = filter(None, self.by_name.values())
        return [*self.table.charging, *[rule for plan in plans for rule in plan.rules]]

    def plan_for(self, scope: Scope) -> Plan | None:
        """The plan of a request; without a method, it is a recorded decision of the rule that its path names."""
        if not scope["method"]:
            return self.by_name.get(scope["path"], self.own)
        return self.table.plan_for(scope)


def limits_of(quota: str | None, texts: Sequence[str]) -> Limits:
    """The limits of a quota for all requests, and of rules such as ``"POST /login 5/minute"``, one text each.

    A rule that is not a path is the name of one in a recording. Raises ``QuotaError`` and ``ConfigurationError``.
    """
    rules, by_name = list[Rule](), dict[str, Plan | None]()
    for text in texts:
        subject, quotas = _parsed(text)
        *methods, path = subject.split()
        if path.startswith("/") and len(methods) <= 1:
            named = methods[0].split(",") if methods else None
            rules.append(Rule(path, quotas, methods=named, name=" ".join([*methods, path])))
        else:
            by_name[subject] = _table(quotas, (), subject).constant_plan
    table = _table(quota, rules, DEFAULT_NAME)
    return Limits(table, _table(quota, (), DEFAULT_NAME).constant_plan, by_name)


def limits_of_file(path: str) -> Limits:
    """The limits of a file, as ``RateLimitMiddleware(config=...)`` reads it.

    Keys are those of the log, except for parameters of the path: a log has no headers. Raises ``ConfigurationError``.
    """
    options = LimitsFile(path, USUAL).options
    rules = [rule if isinstance(rule.key, PathKey) else replace(rule, key=None) for rule in options.rules]
    options = replace(options, key=LOGGED_KEY, rules=tuple(rules))
    return Limits(options.table(options.defaults(Failures()), "", None))


def _table(quota: QuotaLike | None, rules: Sequence[Rule], name: str) -> RuleTable:
    return RuleTable(quota, rules, Defaults(name, LOGGED_KEY))


def _parsed(text: str) -> tuple[str, tuple[Quota, ...] | None]:
    """The target of a rule, and its quotas; ``None`` if it exempts."""
    words = text.split()
    for number in range(1, len(words)):
        subject, quota = " ".join(words[:number]), " ".join(words[number:])
        try:
            return subject, None if quota == _EXEMPT else parse_quotas(quota)
        except QuotaError as error:
            if words[number - 1].startswith("/"):
                raise QuotaError(f"in {text!r}: {error}") from error
    raise ConfigurationError(f"{text!r} is not a path or the name of a rule, and a quota: {EXAMPLES}")
