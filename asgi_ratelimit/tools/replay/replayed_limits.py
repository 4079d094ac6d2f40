"""The limits for a replay: each rule is one text, such as ``"POST /login 5/minute"``, or they come from a file.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from starlette.types import Scope

from ...buckets import DEFAULT_NAME
from ...errors import ConfigurationError, QuotaError
from ...inbound import Rule
from ...inbound.config import USUAL, LimitsFile
from ...inbound.functions.connection_functions import Failures
from ...inbound.rule_table import Defaults, RuleTable
from ...keys.addresses import client_key, parse_address
from ...keys.base import PathKey, ScopeKey
from ...quota_text import parse_quotas
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
    _, key, method, path = request
    return {
        "type": "http",
        "method": method,
        "path": path,
        "client": (key, 0),
        "headers": [],
        "root_path": "",
        "query_string": b"",
    }


def limits_of(quota: str | None, texts: Sequence[str]) -> RuleTable:
    """The limits of a quota for all requests, and of rules such as ``"POST /login 5/minute"``, one text each.

    Raises ``QuotaError`` and ``ConfigurationError``.
    """
    return RuleTable(quota, [_rule(text) for text in texts], Defaults(DEFAULT_NAME, LOGGED_KEY))


def limits_of_file(path: str) -> RuleTable:
    """The limits of a file, as ``RateLimitMiddleware(config=...)`` reads it.

    Keys are those of the log, except for parameters of the path: a log has no headers. Raises ``ConfigurationError``.
    """
    options = LimitsFile(path, USUAL).options
    rules = [rule if isinstance(rule.key, PathKey) else replace(rule, key=None) for rule in options.rules]
    options = replace(options, key=LOGGED_KEY, rules=tuple(rules))
    return options.table(options.defaults(Failures()), "", None)


def _rule(text: str) -> Rule:
    words = text.split()
    at = next((number for number, word in enumerate(words[:2]) if word.startswith("/")), None)
    if at is None or words[at + 1 :] == []:
        raise ConfigurationError(f"{text!r} is not a path and a quota: {EXAMPLES}")
    methods, path, quota = words[:at], words[at], " ".join(words[at + 1 :])
    named = methods[0].split(",") if methods else None
    return Rule(path, _quotas(quota, text), methods=named, name=" ".join([*methods, path]))


def _quotas(quota: str, text: str) -> tuple[Quota, ...] | None:
    """The quotas of a rule; ``None`` if it exempts."""
    try:
        return None if quota == _EXEMPT else parse_quotas(quota)
    except QuotaError as error:
        raise QuotaError(f"in {text!r}: {error}") from error
