"""The results as Markdown, JSON and plots."""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tests.support.redis_server import find_redis, version_of
from tests.support.server import ROOT

from ..processes.throughput import load_generator
from ..subject import PEERS, Subject, Where
from .goals import GOALS, ahead
from .plots import plot
from .results import Column, Part, Row, as_json

RESULTS = ROOT / "benchmarks" / "results"
_ALSO = ("uvicorn", "uvloop", "httptools", "hiredis")


@dataclass(frozen=True, slots=True)
class Short:
    """A column of the tables in short: a figure of a part, in one shape of use if the part has several."""

    head: str
    part: str
    figure: str
    decimals: int
    shape: str = ""


SHORT = (
    Short("CPU µs more, one quota", "cpu", "cpu_64", 1),
    Short("default and a rule", "shapes", "known", 1, "default+rule"),
    Short("settled", "shapes", "known", 1, "settle"),
    Short("throughput served, of bare", "served", "of_bare", 2),
)
SHORT_ON_REDIS = (
    *SHORT,
    Short("CPU µs of Redis", "redis", "redis_cpu", 1),
    Short("requests a second, 1,000 at once", "times", "rate_1000", 0),
)


def write(done: Mapping[str, Part], about: Mapping[str, str], *, whole: bool) -> Path:
    """Write to ``results``, or to its folder ``partial`` unless the run was ``whole``; return the folder."""
    folder = RESULTS if whole else RESULTS / "partial"
    folder.mkdir(parents=True, exist_ok=True)
    data = {"machine": about, "parts": {name: as_json(part) for name, part in done.items()}}
    (folder / "results.json").write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n")
    (folder / "results.md").write_text(markdown(done, about))
    plot(done, folder)
    return folder.relative_to(ROOT)


def markdown(done: Mapping[str, Part], about: Mapping[str, str]) -> str:
    """The whole page."""
    peers = "\n".join(f"* {peer.title}: {peer.note}" for peer in PEERS.values() if peer.note)
    machine = "\n".join(f"* {name}: {value}" for name, value in about.items())
    return "\n\n".join(
        [
            "# Results\n\nWritten by `scripts/bench`; `benchmarks/README.md` says what the columns mean.",
            f"## In short\n\n{summary(done, 'memory', SHORT)}\n\n{summary(done, 'redis', SHORT_ON_REDIS)}",
            *closing(done),
            *map(table, done.values()),
            f"## Notes on the peers\n\n{peers}",
            f"## Measured on\n\n{machine}\n",
        ]
    )


def closing(done: Mapping[str, Part]) -> list[str]:
    """The goals, and the figures in which a peer is ahead."""
    leads = "\n".join(f"* {each}" for each in ahead(done)) or "Nowhere."
    return [f"## To reach\n\n{goals(done)}", f"## Where a peer is ahead\n\n{leads}"]


def goals(done: Mapping[str, Part]) -> str:
    """The goals whose figures were measured, and whether they are reached."""
    rows: list[list[str]] = []
    for goal in GOALS:
        measured = goal.measured(done)
        if not math.isnan(measured):
            bound = f"{'at most' if goal.sign == '<=' else 'at least'} {goal.bound:g}"
            rows.append([goal.what, bound, _number(measured, goal.decimals), _verdict(goal.is_reached(measured))])
    return grid(["what", "to reach", "measured", ""], rows, text=(0, 1, 3))


def summary(done: Mapping[str, Part], where: Where, columns: Sequence[Short]) -> str:
    """One row for each peer over a store."""
    lines = [[peer.title, *(_short(done, Subject(peer, where), each) for each in columns)] for peer in PEERS.values()]
    head = "in memory" if where == "memory" else "on Redis"
    return grid([head, *(column.head for column in columns)], [line for line in lines if any(line[1:])], text=(0,))


def table(part: Part) -> str:
    """The part, without columns that have no figure."""
    columns = {name: each for name, each in part.columns.items() if any(_has(row, name) for row in part.rows)}
    heads = ["", *(each.head for each in columns.values())]
    lines = [[row.title, *(_cell(row, *each) for each in columns.items())] for row in part.rows]
    if any(row.error for row in part.rows):
        heads.append("error")
        lines = [[*line, row.error.replace("|", "/")] for line, row in zip(lines, part.rows, strict=True)]
    note = f"{part.note}\n\n" if part.note else ""
    return f"## {part.title}\n\n{note}{grid(heads, lines, text=(0, len(columns) + 1))}"


def machine(load: str) -> dict[str, str]:
    """The machine, without its name; ``load`` is the load average before the run."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    about = {
        "date": datetime.now(UTC).date().isoformat(),
        "processor": f"{len(models) or '?'} x {models[0] if models else platform.machine()}",
        "load average before and after": f"{load}, {load_average()}",
        "system": platform.system(),
        "python": platform.python_version(),
        "redis-server": ".".join(map(str, version_of(find_redis()))),
        "load generator": load_generator(),
    }
    return about | {name: _version(name) for name in sorted({*_ALSO, *(peer.distribution for peer in PEERS.values())})}


def load_average() -> str:
    """The load average of the last minute; 1 is one busy processor."""
    return f"{os.getloadavg()[0]:.2f}"


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def grid(heads: Sequence[str], lines: Sequence[Sequence[str]], *, text: Sequence[int]) -> str:
    """A table in Markdown; the columns ``text`` are aligned to the left, the others to the right."""
    rule = ["---" if place in text else "---:" for place in range(len(heads))]
    return "\n".join("| " + " | ".join(line) + " |" for line in (heads, rule, *lines))


def _short(done: Mapping[str, Part], subject: Subject, column: Short) -> str:
    name = f"{column.shape}: {subject.name}" if column.shape else subject.name
    row = done[column.part].row(name) if column.part in done else None
    if row is None or _has(row, column.figure):
        return _number(row.figures[column.figure], column.decimals) if row else ""
    return "error" if row.error else ""


def _verdict(reached: bool) -> str:
    return "reached" if reached else "missed"


def _has(row: Row, name: str) -> bool:
    return not math.isnan(row.figure(name))


def _cell(row: Row, name: str, column: Column) -> str:
    return _number(row.figures[name], column.decimals) if _has(row, name) else ""


def _number(value: float, decimals: int) -> str:
    return f"{value:,.{decimals}f}"
