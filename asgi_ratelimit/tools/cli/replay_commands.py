"""The commands ``what-if`` and ``suggest``, which replay logs."""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import re
import secrets
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ...buckets import as_bytes, digest
from ...inbound.rule_table import RuleTable
from ...inbound.rules import constant_quotas
from ..logs import LogReader, fields_of
from ..replay import Replay, limits_of, limits_of_file, report_of
from ..suggest import QUANTILES, SHARES, Suggestion, UsesByKey, uses_of
from ..suggest import suggest as suggest_limits
from .arguments import Parser, add_folder, add_json, listed, positive
from .output import Row, counted, moment, print_json, print_table, printable, progress, share

_SUGGEST = "asgi-ratelimit suggest access.log --refuse 1%"
_WHAT_IF = 'asgi-ratelimit what-if access.log --rule "/login 5/minute"'
logger = logging.getLogger("asgi_ratelimit")

SHORT = 10.0
"""Seconds of a period, below which fractions of seconds matter."""

SHOWN = 10
"""Clients and moments that a report shows by default."""


def add_commands(commands: Any) -> None:
    """Add the commands."""
    parser = commands.add_parser(
        "what-if", help="replay a log under limits, and show who would have been refused", example=_WHAT_IF
    )
    _add_log(parser)
    parser.add_argument("--rule", action="append", default=[], help='such as "/login 5/minute"; may be repeated')
    parser.add_argument("--quota", help='a quota for every request, such as "100/minute"')
    parser.add_argument("--config", help="a file of limits, such as limits.toml, in place of --rule and --quota")
    parser.add_argument("--top", type=positive, default=SHOWN, help=f"clients and moments to show (default: {SHOWN})")
    parser.add_argument("--hide-keys", action="store_true", help="show hashes of clients instead of clients")
    parser.set_defaults(run=what_if)

    parser = commands.add_parser(
        "suggest", help="propose limits by what the clients in a log use, and show whom each refuses", example=_SUGGEST
    )
    _add_log(parser)
    parser.add_argument("--rule", action="append", default=[], help='requests to look at, such as "POST /login"')
    parser.add_argument("--refuse", action="append", help='a share of clients, such as "1%%"; may be repeated')
    parser.add_argument("--kind", default="bucket", help="bucket (default), rolling or fixed")
    parser.set_defaults(run=suggest)


def _add_log(parser: Parser) -> None:
    parser.add_argument("log", nargs="+", help="access logs or logs of JSON, also in gzip; - is the input")
    parser.add_argument(
        "--key", default="client", help="whose a request is: client (default), user, all, or field:NAME"
    )
    parser.add_argument("--field", action="append", default=[], help="a field of a log of JSON, such as time=ts")
    add_json(parser)


def what_if(options: argparse.Namespace) -> int:
    """Replay logs, and print who would have been refused."""
    limits = _limits(options)
    reader, replay = _reader(options), Replay(limits)
    with progress("replaying", reader.size) as advance, _without_warnings(), _uncollected():
        reader.advance = advance
        asyncio.run(replay.run(reader.requests()))
    report = report_of(replay, limits, options.top, _hashed() if options.hide_keys else str)
    report |= {"lines": reader.lines, "unreadable": reader.unreadable, "late": reader.late}
    unused = [name for name, counts in replay.rules.items() if not counts.requests]
    if replay.keyless:
        print(f"warning: {counted(replay.keyless, 'request')} without a key: no limit counts them", file=sys.stderr)
    _warn(reader, unused, any(quota.period < SHORT for _, quota in constant_quotas(limits.charging)))
    if options.json:
        print_json(report)
    else:
        _show(report)
    return 0


def _limits(options: argparse.Namespace) -> RuleTable:
    """The limits to try out. Raises ``ValueError`` if there are none, or too many."""
    has_rules = bool(options.rule) or options.quota is not None
    if has_rules == (options.config is not None):
        problem = "a file says all rules: remove --rule and --quota" if has_rules else "nothing to try out"
        raise ValueError(f"{problem}: {_WHAT_IF}, or --config limits.toml")
    if has_rules:
        return limits_of(options.quota, options.rule)
    add_folder(".")  # for the functions that the file names
    return limits_of_file(options.config)


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Suppress log lines about blocks, which are not those of live keys, within this block."""
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Suspend garbage collection within this block: reading and replaying leave no garbage cycles."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _show(report: dict[str, Any]) -> None:
    """Print a report as tables."""
    requests, clients = report["requests"], report["clients"]
    total = f"{counted(requests, 'request')} of {counted(clients, 'client')}"
    print(f"{total}, {moment(report['from'])} to {moment(report['to'])} UTC")
    refused, refused_clients = report["refused"], report["refused_clients"]
    print(
        f"would be refused: {counted(refused, 'request')} ({share(refused, requests)}), "
        f"of {counted(refused_clients, 'client')} ({share(refused_clients, clients)})\n"
    )
    columns = ("rule", "quota", ">requests", ">refused", ">share", ">clients", ">refused clients", ">share")
    print_table(columns, [_rule_row(rule) for rule in report["rules"]])
    top = [(rule["name"], *_client_row(each)) for rule in report["rules"] for each in rule["top"]]
    if top:
        print()
        print_table(("rule", "client", ">requests", ">refused", ">share", "first refusal"), top)
    if report["worst"]:
        print()
        print_table(("worst moments", ">seconds", ">requests", ">refused", ">share"), map(_moment_row, report["worst"]))


def _rule_row(rule: dict[str, Any]) -> Row:
    requests, refused, clients, refused_clients = (
        rule[name] for name in ("requests", "refused", "clients", "refused_clients")
    )
    name = f"{rule['name']} (shadow)" if rule["shadow"] else rule["name"]
    shares = share(refused, requests), share(refused_clients, clients)
    return name, rule["quota"], requests, refused, shares[0], clients, refused_clients, shares[1]


def _client_row(client: dict[str, Any]) -> Row:
    requests, refused = client["requests"], client["refused"]
    return client["key"], requests, refused, share(refused, requests), moment(client["first"])


def _moment_row(worst: dict[str, Any]) -> Row:
    requests, refused = worst["requests"], worst["refused"]
    return moment(worst["from"]), worst["seconds"], requests, refused, share(refused, requests)


def _warn(reader: LogReader, unused: Sequence[str], is_short: bool) -> None:
    """Report on standard error what makes a replay inexact; ``is_short``: a limit has a period of only some seconds."""
    warnings = []
    if reader.unreadable:
        warnings.append(f"{reader.unreadable:,} of {reader.lines:,} lines could not be read as requests")
    if reader.late:
        warnings.append(f"{counted(reader.late, 'request')} came so late in the log as to count at a later time")
    if reader.in_whole_seconds and is_short:
        warnings.append(
            "the times of the log are whole seconds, so what is said of limits per second is an estimate, and often "
            "too low; a log with fractions is exact"
        )
    if unused:
        warnings.append(f"no request is for {listed(unused)}")
    for warning in warnings:
        print(f"warning: {warning}", file=sys.stderr)


def suggest(options: argparse.Namespace) -> int:
    """Print limits for the requests of a log, and which clients each of them would refuse."""
    limits = _limits_to_suggest(options.rule)
    shares = [_as_share(text) for text in options.refuse or ()] or SHARES
    reader = _reader(options)
    with progress("reading", reader.size) as advance, _uncollected():
        reader.advance = advance
        groups = uses_of(reader.requests(), limits)
    suggestions = {name: suggest_limits(uses, shares, options.kind) for name, uses in groups.items()}
    _warn(reader, [name for name, uses in groups.items() if not uses], is_short=True)
    if options.json:
        print_json([_suggested(name, groups[name], each) for name, each in suggestions.items()])
    else:
        for name, each in suggestions.items():
            _show_suggestions(name if options.rule else "all requests", groups[name], each)
    return 0


def _limits_to_suggest(rules: Sequence[str]) -> RuleTable:
    """Stand-ins for the limits of these rules, or of one for all requests. Raises ``ValueError``."""
    for rule in rules:
        *_, last = rule.split() or [""]
        if not rule.strip() or last == "exempt" or re.fullmatch(r"\d+(\.\d+)?/\w+", last):
            raise ValueError(f'--rule of suggest is a path without a quota, not {rule!r}: --rule "POST /login"')
    return limits_of(None, [f"{rule} 1/s" for rule in rules]) if rules else limits_of("1/s", ())


def _as_share(text: str) -> float:
    """A share of clients that was written as ``1%`` or ``0.01``. Raises ``ValueError``."""
    number = text.removesuffix("%").strip()
    try:
        part = float(number) / (100 if text.endswith("%") else 1)
    except ValueError:
        part = -1.0
    if not 0 <= part < 1:  # true for NaN, too
        raise ValueError(f"--refuse must be a share of clients from 0% to below 100%, not {text!r}: --refuse 1%")
    return part


def _suggested(name: str, uses: UsesByKey, suggestions: Sequence[Suggestion]) -> dict[str, Any]:
    """The suggestions for a rule as plain values."""
    return {
        "rule": name,
        "clients": len(uses),
        "requests": sum([len(each.times) for each in uses.values()]),
        "windows": [
            {
                "window": each.window,
                "use": {f"{quantile:g}": most for quantile, most in zip(QUANTILES, each.quantiles)},
                "limits": [
                    {
                        "quota": choice.quota,
                        "refused_clients": choice.refused_clients,
                        "refused_requests": choice.refused_requests,
                    }
                    for choice in each.choices
                ],
            }
            for each in suggestions
        ],
    }


def _show_suggestions(name: str, uses: UsesByKey, suggestions: Sequence[Suggestion]) -> None:
    """Print suggestions as two tables: what clients use, and what limits would do."""
    requests = sum([len(each.times) for each in uses.values()])
    print(f"{printable(name)}: {counted(requests, 'request')} of {counted(len(uses), 'client')}\n")
    if not uses:
        return
    columns = [f">{quantile:.0%} of clients".replace("100% of clients", "the busiest") for quantile in QUANTILES]
    used = [(f"busiest {each.window}", *each.quantiles) for each in suggestions]
    print_table(("units in its", *[column.replace("% of", " % of") for column in columns]), used)
    print()
    rows = [
        (
            choice.quota,
            choice.refused_clients,
            share(choice.refused_clients, len(uses)),
            choice.refused_requests,
            share(choice.refused_requests, requests),
        )
        for each in suggestions
        for choice in each.choices
    ]
    print_table(("limit", ">refused clients", ">share", ">refused requests", ">share"), rows)
    print()


def _reader(options: argparse.Namespace) -> LogReader:
    return LogReader(options.log, options.key, fields_of(options.field))


def _hashed() -> Callable[[str], str]:
    """A hash function whose results nobody can compare with those of other runs."""
    salt = secrets.token_bytes(16)
    return lambda key: digest(salt + as_bytes(key))[:12]
