"""The command ``asgi-ratelimit`` and its subcommands."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from ..quota_text import explain, parse_quotas
from .arrivals import EXAMPLES as ARRIVALS
from .arrivals import arrivals, arrivals_in_log
from .coverage import Covered, coverage
from .plot import save_png, timeline
from .simulate import Simulation, simulate


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with these arguments, by default those of the process, and return its exit code."""
    parser = argparse.ArgumentParser(prog="asgi-ratelimit", description="Show what rate limits do.")
    commands = parser.add_subparsers(title="commands", required=True, metavar="command")
    add_routes(commands)
    add_simulate(commands)
    options = parser.parse_args(arguments)
    code: int = options.run(options)
    return code


def add_routes(commands: Any) -> None:
    """Add ``routes module:app``, which lists every route and the limits that apply to it."""
    parser = commands.add_parser("routes", help="list every route of an app with the limits that apply to it")
    parser.add_argument("app", help="the app, as module:attribute")
    parser.add_argument("--app-dir", default=".", help="the folder of the module (default: here)")
    parser.add_argument("--factory", action="store_true", help="the attribute is a function that makes the app")
    parser.add_argument("--require", action="store_true", help="fail if a route has no limit and no rule that exempts")
    parser.set_defaults(run=routes)


def routes(options: argparse.Namespace) -> int:
    """Print the routes; exit code 1 for a route without limits under ``--require``, 2 where there is no such app."""
    try:
        covered = coverage(_app(options))
    except (ImportError, AttributeError, ValueError) as error:
        print(f"error: no app at {options.app!r}: {error}: asgi-ratelimit routes main:app", file=sys.stderr)
        return 2
    _print_table([("METHODS", "PATH", "LIMITS"), *map(_row, covered)])
    unlimited = [each.path for each in covered if not each.is_covered]
    if options.require and unlimited:
        print(f"error: without a limit: {', '.join(unlimited)}", file=sys.stderr)
    return int(options.require and bool(unlimited))


def add_simulate(commands: Any) -> None:
    """Add ``simulate "10/s burst 5" --arrivals "20/s poisson"``, which shows what a quota does with these requests."""
    parser = commands.add_parser(
        "simulate", help="show what a quota does with requests, in rate limiting and in pacing"
    )
    parser.add_argument("quota", help='such as "10/s burst 5"; without a burst, pacing spaces requests evenly')
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--arrivals", help=f"when requests arrive: {ARRIVALS}")
    source.add_argument("--log", type=Path, help="a log file with a time in each line")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long requests arrive (default: 30)")
    parser.add_argument("--seed", type=int, default=0, help="the seed of random arrivals (default: 0)")
    parser.add_argument("--cost", type=float, default=1, help="units that a request takes (default: 1)")
    parser.add_argument(
        "--max-delay", type=float, default=math.inf, help="the longest wait of a paced request in seconds"
    )
    parser.add_argument("--png", type=Path, help="draw the timeline into this file instead of the terminal")
    parser.set_defaults(run=simulate_arrivals)


def simulate_arrivals(options: argparse.Namespace) -> int:
    """Print what happens to the requests; exit code 2 where there is nothing to simulate."""
    try:
        times = _arrivals(options)
        limited = simulate(parse_quotas(options.quota), times, 0.0, options.cost)
        paced = simulate(parse_quotas(options.quota, default_burst=1), times, options.max_delay, options.cost)
        _print_runs(options, {"rate limiting": limited, "pacing": paced})
        _draw(options, {"requests": times, "rate limiting": limited.admitted_at, "pacing": paced.admitted_at})
    except (ValueError, OSError, ImportError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _app(options: argparse.Namespace) -> Any:
    module, _, attribute = options.app.partition(":")
    if not module or not attribute:
        raise ValueError("it must be a module, a colon and an attribute")
    sys.path.insert(0, options.app_dir)
    app: Any = import_module(module)
    for name in attribute.split("."):
        app = getattr(app, name)
    return app() if options.factory else app


def _row(covered: Covered) -> tuple[str, str, str]:
    methods = "WEBSOCKET" if covered.is_websocket else ",".join(covered.methods) or "ANY"
    limits = " + ".join(covered.limits) or ("exempt" if covered.is_exempt else "NONE")
    limits += "".join([f" (no key has come: {text})" for text in covered.without_key])
    return methods, covered.path, limits


def _print_table(rows: Sequence[tuple[str, str, str]]) -> None:
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    for methods, path, limits in rows:
        print(f"{methods:<{widths[0]}}  {path:<{widths[1]}}  {limits}")


def _arrivals(options: argparse.Namespace) -> list[float]:
    if options.log is not None:
        with options.log.open(encoding="utf-8", errors="replace") as lines:
            return arrivals_in_log(lines)
    if not 0 < options.seconds < math.inf:
        raise ValueError(f"--seconds must be above 0, not {options.seconds!r}: --seconds 30")
    times = arrivals(options.arrivals, options.seconds, options.seed)
    if not times:
        raise ValueError(f"{options.arrivals!r} has no arrivals in that time: --seconds 60")
    return times


def _print_runs(options: argparse.Namespace, runs: Mapping[str, Simulation]) -> None:
    print(explain(options.quota))
    waits = f"{'50 %':>10}{'90 %':>10}{'99 %':>10}{'max':>10}"
    print(f"\n{'':<15}{'admitted':>10}{'refused':>10}{'in 1 s':>10}  wait: {waits}")
    for name, run in runs.items():
        waits = "".join(f"{wait:>8.3f} s" for wait in run.quantiles())
        print(f"{name:<15}{run.admitted:>10}{run.refused:>10}{run.busiest():>10}        {waits}")


def _draw(options: argparse.Namespace, series: Mapping[str, Sequence[float | None]]) -> None:
    if options.png is None:
        print("", *timeline(series), sep="\n")
    else:
        save_png(options.png, series)
        print(f"\ntimeline drawn in {options.png}")
