"""The commands ``routes`` and ``check``: they show which limits there are, and whether they make sense."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from traceback import extract_tb
from typing import Any

from ...decision import checked_cost
from ...inbound.config import Tier
from ...inbound.functions import takes
from ...quota_text import as_text, explain, parse_quotas
from ...quotas import Quota
from ..coverage import Covered, coverage, findings, quotas_as_text, rules_of, rules_of_file
from .output import print_json, print_table, say, warn

_ROUTES = "asgi-ratelimit routes main:app"
_CHECK = 'asgi-ratelimit check main:app, or asgi-ratelimit check "10/s burst 20; 1000/hour"'
_IS_APP = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*").fullmatch


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
        parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--require", action="store_true", help="fail if a route has no limit and no rule that exempts")
    commands.choices["check"].add_argument("--cost", type=float, default=1, help="units of a request (default: 1)")


def routes(options: argparse.Namespace) -> int:
    """Print the routes; exit code 1 for a route without limits under ``--require``."""
    covered = coverage(load_app(options, _ROUTES))
    if options.json:
        print_json([asdict(each) for each in covered])
    else:
        print_table(("methods", "path", "limits"), [_row(each) for each in covered])
    unlimited = [each.path for each in covered if not each.is_covered]
    if options.require and unlimited:
        warn(f"without a limit: {', '.join(unlimited)}", "error")
    return int(options.require and bool(unlimited))


def _row(covered: Covered) -> tuple[str, str, str]:
    methods = "WEBSOCKET" if covered.is_websocket else ",".join(covered.methods) or "ANY"
    limits = " + ".join(covered.limits) or ("exempt" if covered.is_exempt else "NONE")
    limits += "".join([f" (no key has come: {text})" for text in covered.without_key])
    return methods, covered.path, limits


def check(options: argparse.Namespace) -> int:
    """Explain limits, and print what is wrong with them; exit code 1 if anything is."""
    is_file = options.app.endswith(".toml")
    if is_file or _IS_APP(options.app):
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


def load_app(options: argparse.Namespace, example: str) -> Any:
    """The app at ``options.app``, as ``module:attribute``. Raises ``ValueError`` where there is none."""
    module, _, attribute = options.app.partition(":")
    try:
        if not module or not attribute or module.endswith(".py"):
            raise ValueError("it must be a module, not a file, and a colon and an attribute")
        add_folder(options.app_dir)
        app: Any = import_module(module)
        for name in attribute.split("."):
            app = getattr(app, name)
        app = app() if options.factory and callable(app) and takes(app, 0) else app
        if not callable(app) or not takes(app, 3):
            hint = "; a function that makes one needs --factory"
            raise ValueError(f"{type(app).__name__!r} is not an ASGI app, which takes scope, receive and send{hint}")
        return app
    except (ImportError, AttributeError, ValueError) as error:
        start = " ".join(example.split()[:2])
        mend = f"{start} {options.app} --app-dir src" if isinstance(error, ModuleNotFoundError) else example
        raise ValueError(f"no app at {options.app!r}: {error}: {mend}") from error
    except (Exception, SystemExit) as error:  # the module is the program's, which may raise whatever it likes
        place = extract_tb(error.__traceback__)[-1]
        where = "" if isinstance(error, SyntaxError) else f" ({Path(place.filename).name}, line {place.lineno})"
        raised = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}{where}"
        raise ValueError(f"no app at {options.app!r}: {raised}: {example}") from error


def add_folder(folder: str) -> None:
    """Let modules in a folder be imported."""
    sys.path.insert(0, str(Path(folder).resolve()))
