"""The command ``simulate``."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...quota_text import explain, parse_quotas
from ..arrivals import EXAMPLES as ARRIVALS
from ..arrivals import arrivals, arrivals_in_log
from ..plot import figure_class, save_png, timeline
from ..simulate import Simulation, simulate

_COLUMNS = ("admitted", "refused", "in 1 s", "50 %", "90 %", "99 %", "max")


def add_commands(commands: Any) -> None:
    """Add ``simulate "10/s burst 5" --arrivals "20/s poisson"``, which shows what a quota does with these requests."""
    parser = commands.add_parser(
        "simulate",
        help="show what a quota does with requests, in rate limiting and in pacing",
        example='asgi-ratelimit simulate "10/s burst 5" --arrivals "20/s poisson"',
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
    """Print what happens to the requests."""
    if options.png is not None:
        figure_class()  # an error has to come before anything is printed
    times = _arrivals(options)
    limited = simulate(parse_quotas(options.quota), times, 0.0, options.cost)
    paced = simulate(parse_quotas(options.quota, default_burst=1), times, options.max_delay, options.cost)
    _print_runs(options, {"rate limiting": limited, "pacing": paced})
    _draw(options, {"requests": times, "rate limiting": limited.admitted_at, "pacing": paced.admitted_at})
    return 0


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
    print(explain(options.quota), end="\n\n")
    rows = [("", _COLUMNS), *[(name, _cells(run)) for name, run in runs.items()]]
    widths = [max(10, 2 + max(map(len, column))) for column in zip(*[cells for _, cells in rows])]
    for name, cells in rows:
        shown = [f"{cell:>{width}}" for cell, width in zip(cells, widths)]
        print(f"{name:<15}{''.join(shown[:3])}{'' if name else '  wait:':<8}{''.join(shown[3:])}")


def _cells(run: Simulation) -> Sequence[str]:
    waits = [f"{wait:.3f} s" if run.admitted else "-" for wait in run.quantiles()]
    return (str(run.admitted), str(run.refused), str(run.busiest()), *waits)


def _draw(options: argparse.Namespace, series: Mapping[str, Sequence[float | None]]) -> None:
    if options.png is None:
        print("", *timeline(series), sep="\n")
    else:
        save_png(options.png, series)
        print(f"\ntimeline drawn in {options.png}")
