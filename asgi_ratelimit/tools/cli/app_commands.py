"""The commands ``routes`` and ``check``: they show which limits there are, and whether they make sense."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from typing import Any

from ...decision import checked_cost
from ...inbound.rules import CompiledRule
from ...quota_text import as_text, explain, parse_quotas
from ...quotas import Quota
from ..coverage import Covered, coverage, quotas_as_text
from ..quota_checks import findings, rules_of, rules_of_file
from .arguments import add_app, add_folder, add_json, load_app, require_no_path
from .output import print_json, print_table

_ROUTES = "asgi-ratelimit routes main:app"
_CHECK = 'asgi-ratelimit check main:app, or asgi-ratelimit check "10/s burst 20; 1000/hour"'
_IS_WORD = re.compile(r"[A-Za-z_][\w.]*").fullmatch
_IS_APP = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*").fullmatch


def add_commands(commands: Any) -> None:
    """Add the commands."""
    parser = commands.add_parser(
        "routes", help="list every route of an app with the limits that apply to it", example=_ROUTES
    )
    parser.add_argument("app", help="the app, as module:attribute")
    parser.add_argument("--require", action="store_true", help="fail if a route has no limit and no rule that exempts")
    add_app(parser)
    add_json(parser)
    parser.set_defaults(run=routes)
    parser = commands.add_parser(
        "check", help="explain the quotas of a text, a file or an app, and find what is wrong", example=_CHECK
    )
    parser.add_argument(
        "app", metavar="what", help="quotas, a file of limits (limits.toml), or an app as module:attribute"
    )
    parser.add_argument("--cost", type=float, default=1, help="units that a request takes from quotas (default: 1)")
    add_app(parser)
    add_json(parser)
    parser.set_defaults(run=check)


def routes(options: argparse.Namespace) -> int:
    """Print the routes; exit code 1 for a route without limits under ``--require``."""
    covered = coverage(load_app(options, _ROUTES))
    if options.json:
        print_json([_as_dict(each) for each in covered])
    else:
        print_table(("methods", "path", "limits"), [_row(each) for each in covered])
    unlimited = [each.path for each in covered if not each.is_covered]
    if options.require and unlimited:
        print(f"error: without a limit: {', '.join(unlimited)}", file=sys.stderr)
    return int(options.require and bool(unlimited))


def _as_dict(covered: Covered) -> dict[str, Any]:
    return {
        "path": covered.path,
        "methods": covered.methods,
        "is_websocket": covered.is_websocket,
        "limits": covered.limits,
        "is_exempt": covered.is_exempt,
        "without_key": covered.without_key,
    }


def _row(covered: Covered) -> tuple[str, str, str]:
    methods = "WEBSOCKET" if covered.is_websocket else ",".join(covered.methods) or "ANY"
    limits = " + ".join(covered.limits) or ("exempt" if covered.is_exempt else "NONE")
    limits += "".join([f" (no key has come: {text})" for text in covered.without_key])
    return methods, covered.path, limits


def check(options: argparse.Namespace) -> int:
    """Explain limits, and print what is wrong with them; exit code 1 if anything is."""
    if _IS_APP(options.app) or options.app.endswith(".toml"):
        rules, problems = _rules(options)
        limits = [_explained(rule.name, quotas_as_text(rule), rule.quota, rule.messages) for rule in rules]
    else:
        _require_quota(options.app)
        quotas = parse_quotas(options.app)
        limits, problems = [_explained("", as_text(quotas), quotas)], [*findings(quotas, checked_cost(options.cost))]
    if options.json:
        print_json({"limits": limits, "findings": problems})
        return int(bool(problems))
    for limit in limits:
        if limit["name"]:
            print(f"{limit['name']}: {limit['quotas']}")
        print(*limit["explained"], "", sep="\n")
    print(*[f"finding: {each}" for each in problems] or ["no findings"], sep="\n")
    return int(bool(problems))


def _require_quota(text: str) -> None:
    """Raise ``ValueError`` for a text that is meant to be an app or a file, which no quota can be."""
    require_no_path(text, _CHECK)
    if _IS_WORD(text):
        start = "asgi-ratelimit check"
        raise ValueError(f"{text!r} is no quota, app or file: {start} {text}:app, {start} limits.toml")


def _rules(options: argparse.Namespace) -> tuple[list[CompiledRule], list[str]]:
    """The rules of an app or a file, and what is wrong with them."""
    if options.app.endswith(".toml"):
        add_folder(options.app_dir)
        return rules_of_file(options.app)
    return rules_of(load_app(options, _CHECK))


def _explained(name: str, text: str, quotas: Any, messages: Sequence[Quota] = ()) -> dict[str, Any]:
    explained = [] if callable(quotas) or not quotas else explain(quotas).splitlines()
    if messages:
        explained += [f"Messages: {each}" for each in explain(messages).splitlines()]
    return {"name": name, "quotas": text, "explained": explained}
