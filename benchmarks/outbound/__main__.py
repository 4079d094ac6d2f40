"""``scripts/bench outbound`` prints tables and writes them to ``benchmarks/results/outbound.md``, each in its section.

Peers run in memory and on one event loop, because some support no more.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence

from tests.support.server import ROOT

from . import figures, services, transport, waiting
from .peers import PEERS

RESULTS = ROOT / "benchmarks" / "results" / "outbound.md"

Table = Sequence[Sequence[str]]

PARTS: dict[str, tuple[str, Callable[[Iterable[str]], Table]]] = {
    "calls": ("A call", figures.table),
    "waiting": ("A call that waits", waiting.table),
    "services": ("Services that count for themselves", services.table),
    "processes": ("The same, with several processes", services.processes),
    "transport": ("PacedTransport", transport.table),
}
"""The heading of each part, and what measures it."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench outbound")
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; all of them by default")
    parser.add_argument("--only", default="", help=f"of {', '.join(PEERS)}; with commas; writes nothing")
    arguments = parser.parse_args()
    names = arguments.only.split(",") if arguments.only else list(PEERS)
    sections = _sections()
    for part in arguments.parts or PARTS:
        heading, measure = PARTS[part]
        sections[heading] = "\n".join(f"| {' | '.join(line)} |" for line in measure(names))
        print(f"\n{sections[heading]}\n", flush=True)
        if not arguments.only:
            RESULTS.write_text(_text(sections))


def _sections() -> dict[str, str]:
    """The tables of the last run, by their headings; those of other headings are dropped."""
    kept = dict.fromkeys([heading for heading, _ in PARTS.values()], "")
    for section in RESULTS.read_text().split("\n## ")[1:] if RESULTS.exists() else ():
        heading, _, text = section.partition("\n")
        if heading in kept:
            kept[heading] = text.strip()
    return kept


def _text(sections: dict[str, str]) -> str:
    shown = [f"## {heading}\n\n{text}\n" for heading, text in sections.items() if text]
    return "\n".join(["# Outgoing calls\n", *shown])


if __name__ == "__main__":
    main()
