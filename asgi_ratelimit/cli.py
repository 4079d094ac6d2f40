"""The command ``asgi-ratelimit``: one function for each of its verbs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from .inbound import Covered, coverage


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with these arguments, or those of the process; its exit code."""
    parser = argparse.ArgumentParser(prog="asgi-ratelimit", description="What your limits do.")
    verbs = parser.add_subparsers(title="verbs", required=True, metavar="verb")
    add_routes(verbs)
    options = parser.parse_args(arguments)
    code: int = options.run(options)
    return code


def add_routes(verbs: Any) -> None:
    """``routes module:app``: every route, and the limits that apply to it."""
    parser = verbs.add_parser("routes", help="list every route of an app with the limits that apply to it")
    parser.add_argument("app", help="where the app is: module:attribute")
    parser.add_argument("--app-dir", default=".", help="the folder in which the module is looked up (default: here)")
    parser.add_argument("--factory", action="store_true", help="the attribute is a function that makes the app")
    parser.add_argument("--require", action="store_true", help="fail if a route has no limit and no rule that exempts")
    parser.set_defaults(run=routes)


def routes(options: argparse.Namespace) -> int:
    """Print the routes; 1 where one is not covered that must be, 2 where there is no such app."""
    try:
        found = coverage(_app(options))
    except (ImportError, AttributeError, ValueError) as error:
        print(f"error: no app at {options.app!r}: {error}: asgi-ratelimit routes main:app", file=sys.stderr)
        return 2
    _print_table([("METHODS", "PATH", "LIMITS"), *map(_row, found)])
    bare = [each for each in found if not each.is_covered]
    if options.require and bare:
        print(f"error: without a limit: {', '.join(each.path for each in bare)}", file=sys.stderr)
    return int(options.require and bool(bare))


def _app(options: argparse.Namespace) -> Any:
    module, found, attribute = options.app.partition(":")
    if not found or not module or not attribute:
        raise ValueError("a module, a colon and an attribute are needed")
    sys.path.insert(0, options.app_dir)
    app: Any = import_module(module)
    for name in attribute.split("."):
        app = getattr(app, name)
    return app() if options.factory else app


def _row(covered: Covered) -> tuple[str, str, str]:
    methods = "WEBSOCKET" if covered.is_websocket else ",".join(covered.methods) or "ANY"
    limits = " + ".join(covered.limits) or ("exempt" if covered.is_exempt else "NONE")
    return methods, covered.path, limits


def _print_table(rows: Sequence[tuple[str, str, str]]) -> None:
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    for methods, path, limits in rows:
        print(f"{methods:<{widths[0]}}  {path:<{widths[1]}}  {limits}")
