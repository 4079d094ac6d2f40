"""The commands ``routes`` and ``check``: what limits there are, and whether they make sense."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from ..coverage import Covered, coverage
from .arguments import add_app, add_json, load_app
from .output import print_json, print_table

_ROUTES = "asgi-ratelimit routes main:app"


def add_commands(commands: Any) -> None:
    """Add ``routes module:app``, which lists every route and the limits that apply to it."""
    parser = commands.add_parser(
        "routes", help="list every route of an app with the limits that apply to it", example=_ROUTES
    )
    parser.add_argument("app", help="the app, as module:attribute")
    parser.add_argument("--require", action="store_true", help="fail if a route has no limit and no rule that exempts")
    add_app(parser)
    add_json(parser)
    parser.set_defaults(run=routes)


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
