"""``scripts/bench [--quick] [--only PEERS] [--clients N] [parts...]``: measure, print the tables, write the results."""

from __future__ import annotations

import argparse
import sys
import time

from .apps.shapes import SHAPES
from .parts import admission, clients, flood, inprocess, memory, outage, served, shapes
from .plan import plan
from .processes.runner import runners
from .profiling import CASES, profile
from .reporting import report
from .reporting.results import Part
from .subject import PEERS

PARTS = {
    "inprocess": inprocess.run,
    "shapes": shapes.run,
    "clients": clients.run,
    "served": served.run,
    "flood": flood.run,
    "memory": memory.run,
    "admission": admission.run,
    "outage": outage.run,
}
QUICK = [name for name in PARTS if name != "outage"]  # it takes a minute, and cannot be shortened


def main() -> None:
    arguments = _parser().parse_args()
    only = [name for name in arguments.only.split(",") if name]
    unknown = [*(set(arguments.parts) - set(PARTS)), *(set(only) - set(PEERS))]
    if unknown:
        sys.exit(f"error: no {', '.join(unknown)}; parts: {', '.join(PARTS)}; peers: {', '.join(PEERS)}")
    if arguments.profile:
        profile(CASES[arguments.profile], only[0] if only else "ours", arguments.shape, arguments.clients)
    else:
        _measure(arguments, only)


def _measure(arguments: argparse.Namespace, only: list[str]) -> None:
    load = report.load_average()
    done: dict[str, Part] = {}
    with runners(only) as started:
        extent = plan(quick=arguments.quick, clients=arguments.clients, subjects=len(started))
        for name in arguments.parts or (QUICK if arguments.quick else PARTS):
            start = time.monotonic()
            parts = PARTS[name](started, extent)
            done |= {part.name: part for part in parts}
            print(*map(report.table, parts), f"({time.monotonic() - start:.0f} s)\n", sep="\n\n", flush=True)
    whole = not (arguments.quick or only or arguments.parts)
    print(*report.closing(done), sep="\n\n")
    print("\nWritten to", report.write(done, report.machine(load), whole=whole))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/bench", description="What a limit costs, beside its peers.")
    parser.add_argument("parts", nargs="*", metavar="part", help=f"of {', '.join(PARTS)}; all by default")
    parser.add_argument(
        "--quick", action="store_true", help="fewer and shorter rounds: some minutes for all but the outage"
    )
    parser.add_argument("--only", default="", metavar="PEERS", help=f"of {', '.join(PEERS)}; with commas")
    parser.add_argument("--clients", type=int, default=1000, help="addresses of the requests in the part inprocess")
    parser.add_argument("--profile", choices=CASES, help="measure nothing else, and show CPU time by function")
    parser.add_argument("--shape", choices=SHAPES, default="", help="with --profile: this shape of use")
    return parser


if __name__ == "__main__":
    main()
