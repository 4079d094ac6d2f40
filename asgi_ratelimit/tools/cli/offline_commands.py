"""The commands that need no store: ``routes`` and ``check`` on an app, ``what-if`` and ``suggest`` on logs."""

from __future__ import annotations

import argparse
import asyncio
import logging
import math
import re
import secrets
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from pkgutil import resolve_name
from traceback import extract_tb
from typing import Any

from ...buckets import as_bytes, digest
from ...decision import checked_cost
from ...errors import RateLimitError, require_number
from ...inbound.config import Tier
from ...inbound.plan import RuleTable
from ...inbound.routes import AppRoute
from ...inbound.user_functions import takes
from ...quota_text import as_text, explain, parse_quotas
from ...quotas import Quota, has_places
from ..coverage import Covered, covered, findings, misplaced, quotas_as_text, routes_of, rules_of, rules_of_file
from ..log_lines import fields_of
from ..log_reading import LogReader
from ..replay import KINDS, QUANTILES, SHARES, Replay, limits_of, limits_of_file, suggest, times_of
from .output import Row, counted, listed, moment, print_json, print_table, say, share, warn

_ROUTES = "asgi-ratelimit routes main:app"
_CHECK = 'asgi-ratelimit check main:app, or asgi-ratelimit check "10/s burst 20; 1000/hour"'
_SUGGEST = "asgi-ratelimit suggest access.log --refuse 1%"
_WHAT_IF = 'asgi-ratelimit what-if access.log --quota 100/minute --rule "/login 5/minute"'
_IS_APP = re.compile(r"[A-Za-z_][\w.]*(:[A-Za-z_][\w.]*)?").fullmatch  # or lacks its attribute

# Microseconds of a period, below which fractions of seconds matter.
SHORT_US = 10e6

# Clients and moments that a report shows by default.
SHOWN = 10


def add_commands(commands: Any) -> None:
    """Add the commands."""
    for name, run, what, example in (
        ("check", check, "explain the quotas of a text, a file or an app, and find what is wrong", _CHECK),
        ("routes", routes, "list every route of an app with the limits that apply to it", _ROUTES),
    ):
        parser = commands.add_parser(name, help=what, example=example)
        parser.set_defaults(run=run)
        parser.add_argument("app", help="an app as module:attribute; for check, also quotas or a file (limits.toml)")
        parser.add_argument("--app-dir", default=".", help="the folder of the module (default: here)")
        parser.add_argument("--factory", action="store_true", help="the attribute is a function that makes the app")
    commands.choices["routes"].add_argument(
        "--require", action="store_true", help="fail if a route has no limit and no rule that exempts"
    )
    commands.choices["check"].add_argument("--cost", type=float, default=1, help="units of a request (default: 1)")
    for name, run, what, rule, example in (
        ("what-if", what_if, "replay a log under limits, and show who would have been refused", "/login 5/s", _WHAT_IF),
        ("suggest", suggest_limits, "propose limits by what the clients in a log use", "POST /login", _SUGGEST),
    ):
        parser = commands.add_parser(name, help=what, example=example)
        parser.set_defaults(run=run)
        parser.add_argument("log", nargs="+", help="access logs or logs of JSON, also in gzip; - is the input")
        parser.add_argument("--key", default="client", help="whose a request is: client, user, all, or field:NAME")
        parser.add_argument("--field", action="append", default=[], help="a field of a log of JSON, such as time=ts")
        parser.add_argument("--rule", action="append", default=[], help=f'such as "{rule}"; may be repeated')
    parser = commands.choices["suggest"]
    parser.add_argument("--refuse", action="append", help='a share of clients, such as "1%%"; may be repeated')
    parser.add_argument("--kind", default="bucket", choices=KINDS, help="of quota: bucket (default), rolling or fixed")
    parser = commands.choices["what-if"]
    parser.add_argument("--quota", help='a quota for every request, such as "100/minute"')
    parser.add_argument("--config", help="a file of limits, such as limits.toml, in place of --rule and --quota")
    parser.add_argument("--top", type=int, default=SHOWN, help=f"clients and moments to show (default: {SHOWN})")
    parser.add_argument("--hide-keys", action="store_true", help="show hashes of clients instead of clients")


# On an app


def routes(options: argparse.Namespace) -> int:
    """Print the routes; exit code 1 under ``--require``, for a route without limits, or limits that cannot be."""
    found = load_app(options, _ROUTES)
    listed = covered(found)
    if options.json:
        print_json([asdict(each) for each in listed])
    else:
        print_table(("methods", "path", "limits"), [_row(each) for each in listed])
    problems = [*misplaced(found), *[f"without a limit: {each.path}" for each in listed if not each.is_covered]]
    for problem in problems if options.require else ():
        warn(problem, "error")
    return int(options.require and bool(problems))


def _row(route: Covered) -> tuple[str, str, str]:
    methods = "WEBSOCKET" if route.is_websocket else ",".join(route.methods) or "ANY"
    limits = " + ".join(route.limits) or ("exempt" if route.is_exempt else "NONE")
    limits += "".join([f" (no key has come: {text})" for text in route.without_key])
    return methods, route.path, limits


def check(options: argparse.Namespace) -> int:
    """Explain limits, and print what is wrong with them; exit code 1 if anything is."""
    is_file = options.app.endswith(".toml")
    if is_file or _IS_APP(options.app):
        if options.cost != 1:
            raise ValueError(f"--cost is for quotas as text, each rule has its own: {_CHECK} --cost 5")
        add_folder(options.app_dir)
        rules, problems = rules_of_file(options.app) if is_file else rules_of(load_app(options, _CHECK))
        limits = [_explained(rule.name, quotas_as_text(rule), rule.quota, rule.messages) for rule in rules]
    else:
        quotas = parse_quotas(options.app)
        limits, problems = [_explained("", as_text(quotas), quotas)], [*findings(quotas, checked_cost(options.cost))]
    if options.json:
        print_json({"limits": limits, "findings": problems})
        return int(bool(problems))
    for limit in limits:
        name = f"{limit['name']}: {limit['quotas']}\n" if limit["name"] else ""
        say(name + "\n".join([*limit["explained"], ""]))
    say("\n".join([f"finding: {each}" for each in problems]) or "no findings")
    return int(bool(problems))


def _explained(name: str, text: str, quotas: Any, messages: Sequence[Quota] = ()) -> dict[str, Any]:
    explained = []
    if isinstance(quotas, Tier):
        explained = [f"{tier}: {each}" for tier, given in quotas.quotas.items() for each in explain(given).splitlines()]
    elif quotas and not callable(quotas):
        explained = explain(quotas).splitlines()
    if messages:
        explained += [f"Messages: {each}" for each in explain(messages).splitlines()]
    return {"name": name, "quotas": text, "explained": explained}


def load_app(options: argparse.Namespace, example: str) -> list[AppRoute]:
    """The routes of the app at ``options.app``, ``module:attribute``. Raises ``ValueError`` where there is none."""
    module, _, attribute = options.app.partition(":")
    try:
        if not module or not attribute or module.endswith(".py"):
            raise ValueError("it must be a module, not a file, and a colon and an attribute")
        add_folder(options.app_dir)
        app: Any = resolve_name(options.app)
        app = app() if options.factory and callable(app) and takes(app, 0) else app
        if not callable(app) or not takes(app, 3):
            kind = f"{type(app).__name__!r} is not an ASGI app, which takes scope, receive and send"
            raise ValueError(f"{kind}; a function that makes one needs --factory")
        return routes_of(app)  # whose middlewares are the program's, too
    except RateLimitError:  # a mistake in its limits
        raise
    except (Exception, SystemExit) as error:  # the module is the program's, which may raise whatever it likes
        why, mend = str(error), example
        if isinstance(error, ModuleNotFoundError):
            mend = f"{' '.join(example.split()[:2])} {options.app} --app-dir src"
        elif not isinstance(error, (ImportError, AttributeError, ValueError)):
            place = extract_tb(error.__traceback__)[-1]
            where = "" if isinstance(error, SyntaxError) else f" ({Path(place.filename).name}, line {place.lineno})"
            why = f"{type(error).__name__}: {why.partition(chr(10))[0]}{where}"
        raise ValueError(f"no app at {options.app!r}: {why}: {mend}") from error


def add_folder(folder: str) -> None:
    """Let modules in a folder be imported."""
    sys.path.insert(0, str(Path(folder).resolve()))


# On logs


def _reader(options: argparse.Namespace, limits: RuleTable) -> LogReader:
    return LogReader(options.log, options.key, fields_of(options.field), any(rule.methods for rule in limits.rules))


def what_if(options: argparse.Namespace) -> int:
    """Replay logs, and print who would have been refused."""
    require_number("--top must be a whole number of at least 0", options.top, 0, math.inf, f"--top {SHOWN}", int)
    limits = _limits(options)
    reader, replay = _reader(options, limits), Replay(limits)
    logger = logging.getLogger("asgi_ratelimit")
    level = logger.level
    logger.setLevel(logging.ERROR)  # blocks are not those of live keys
    try:
        with closing(asyncio.new_event_loop()) as loop:  # under asyncio.run, Ctrl-C would wait for the end
            loop.run_until_complete(replay.run(reader.requests()))
    finally:
        logger.setLevel(level)
    report = replay.report(options.top)
    salt = secrets.token_bytes(16)  # so that nobody can compare the hashes with those of other runs
    for each in [each for rule in report["rules"] for each in rule["top"] if options.hide_keys]:
        each["key"] = digest(salt + as_bytes(each["key"]))[:12]
    report |= {"lines": reader.lines, "unreadable": reader.unreadable, "late": reader.late}
    if replay.keyless:
        warn(f"{counted(replay.keyless, 'request')} without a key: no limit counts them")
    with_places = [rule.name for rule in limits.charging if has_places(rule.constant_quotas)]
    if with_places:
        warn(f"requests in flight are not limited, as a log does not say how long they take: {listed(with_places)}")
    unused = [name for name, counts in replay.rules.items() if not counts and name not in with_places]
    _warn(reader, unused, any(quota.period_us < SHORT_US for rule in limits.charging for quota in rule.constant_quotas))
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


def _show(report: dict[str, Any]) -> None:
    """Print a report as tables."""
    requests, clients, refused = report["requests"], report["clients"], report["refused_clients"]
    say(
        f"{counted(requests, 'request')} of {counted(clients, 'client')}, "
        f"{moment(report['from'])} to {moment(report['to'])} UTC\n"
        f"would be refused: {counted(report['refused'], 'request')} ({share(report['refused'], requests)}), "
        f"of {counted(refused, 'client')} ({share(refused, clients)})\n"
    )
    rules, top, worst = list[Row](), list[Row](), list[Row]()
    for rule in report["rules"]:
        name = f"{rule['name']} (shadow)" if rule["shadow"] else rule["name"]
        of_clients = rule["clients"], rule["refused_clients"], share(rule["refused_clients"], rule["clients"])
        rules.append((name, rule["quota"], *_refusals(rule), *of_clients))
        top += [(rule["name"], each["key"], *_refusals(each), moment(each["first"])) for each in rule["top"]]
    worst += [(moment(each["from"]), each["seconds"], *_refusals(each)) for each in report["worst"]]
    numbers = (">requests", ">refused", ">share")
    print_table(("rule", "quota", *numbers, ">clients", ">refused clients", ">share"), rules)
    if top:
        print()
        print_table(("rule", "client", *numbers, "first refusal"), top)
        print()
        print_table(("worst moments", ">seconds", *numbers), worst)


def _refusals(counts: dict[str, Any]) -> Row:
    return counts["requests"], counts["refused"], share(counts["refused"], counts["requests"])


def _warn(reader: LogReader, unused: Sequence[str], is_short: bool) -> None:
    """Report on standard error what makes a replay inexact; ``is_short``: a limit has a period of only some seconds."""
    if reader.unreadable:
        warn(f"{reader.unreadable:,} of {reader.lines:,} lines could not be read as requests")
    if reader.late:
        warn(f"{counted(reader.late, 'request')} came so late in the log as to count at a later time")
    if reader.in_whole_seconds and is_short:
        warn("the times of the log are whole seconds, so limits per second are estimates; with fractions, it is exact")
    if unused:
        warn(f"no request is for {listed(unused)}")


def suggest_limits(options: argparse.Namespace) -> int:
    """Print limits for the requests of a log, and which clients each of them would refuse."""
    for rule in options.rule:
        if not re.search(r"(^| )/\S*$", rule):
            raise ValueError(f'--rule of suggest is a path without a quota, not {rule!r}: --rule "POST /login"')
    limits = limits_of(None if options.rule else "1/s", [f"{rule} 1/s" for rule in options.rule])
    shares = [_as_share(text) for text in options.refuse or ()] or SHARES
    reader = _reader(options, limits)
    times = times_of(reader.requests(), limits)
    _warn(reader, [name for name, clients in times.items() if not clients], is_short=True)
    report = []
    for name, clients in times.items():
        totals = {"clients": len(clients), "requests": sum(map(len, clients.values()))}
        report.append({"rule": name, **totals, "windows": [*suggest(clients, shares, options.kind)]})
        if not options.json:
            _show_suggestions(name if options.rule else "all requests", report[-1])
    if options.json:
        print_json(report)
    return 0


def _as_share(text: str) -> float:
    """A share of clients that was written as ``1%`` or ``0.01``. Raises ``ValueError``."""
    try:
        part = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        part = -1.0
    if not 0 <= part < 1:  # true for NaN, too
        raise ValueError(f"--refuse must be a share of clients from 0% to below 100%, not {text!r}: --refuse 1%")
    return part


def _show_suggestions(name: str, report: dict[str, Any]) -> None:
    """Print suggestions as two tables: what clients use, and what limits would do."""
    clients, requests, windows = report["clients"], report["requests"], report["windows"]
    say(f"{name}: {counted(requests, 'request')} of {counted(clients, 'client')}\n")
    if not windows:
        return
    columns = [f">{100 * quantile:.0f} % of clients" for quantile in QUANTILES[:-1]]
    used = [(f"busiest {each['window']}", *each["use"].values()) for each in windows]
    print_table(("units in its", *columns, ">the busiest"), used)
    print()
    rows = list[Row]()
    for limit in [limit for each in windows for limit in each["limits"]]:
        refused, lost = limit["refused_clients"], limit["refused_requests"]
        rows.append((limit["quota"], refused, share(refused, clients), lost, share(lost, requests)))
    print_table(("limit", ">refused clients", ">share", ">refused requests", ">share"), rows)
    print()
