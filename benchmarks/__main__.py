"""``scripts/bench [--quick] [--only PEERS] [--clients N] [parts...]``: measure, print the tables, write the results."""

from __future__ import annotations

import argparse
import sys
import time

from . import report
from .parts import admission, flood, inprocess, memory, served
from .plan import plan
from .results import Part
from .runner import subjects
from .subject import PEERS

PARTS = {
    "inprocess": inprocess.run,
    "served": served.run,
    "flood": flood.run,
    "memory": memory.run,
    "admission": admission.run,
}


def main() -> None:
    arguments = _parser().parse_args()
    only = [name for name in arguments.only.split(",") if name]
    wanted = arguments.parts or list(PARTS)
    unknown = [*(set(wanted) - set(PARTS)), *(set(only) - set(PEERS))]
    if unknown:
        sys.exit(f"error: no {', '.join(unknown)}; parts: {', '.join(PARTS)}; peers: {', '.join(PEERS)}")
    whole = not (arguments.quick or only or arguments.parts)
    done: dict[str, Part] = {}
    with subjects(only) as found:
        for name in wanted:
            start = time.monotonic()
            done[name] = PARTS[name](found, plan(quick=arguments.quick, clients=arguments.clients))
            print(report.table(done[name]), f"({time.monotonic() - start:.0f} s)\n", sep="\n", flush=True)
    print("Written to", report.write(done, whole=whole))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/bench", description="What a limit costs, beside its peers.")
    parser.add_argument("parts", nargs="*", metavar="part", help=f"of {', '.join(PARTS)}; all by default")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds: under two minutes for all")
    parser.add_argument("--only", default="", metavar="PEERS", help=f"of {', '.join(PEERS)}; with commas")
    parser.add_argument("--clients", type=int, default=1, help="addresses that requests in process come from")
    return parser


if __name__ == "__main__":
    main()
