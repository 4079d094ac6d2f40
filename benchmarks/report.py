"""The results as Markdown, JSON and plots."""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tests.redis_server import find_redis, version_of
from tests.server import ROOT

from .clients import load_generator
from .plots import plot
from .results import Part, Row, as_json
from .subject import PEERS, Subject, working

RESULTS = ROOT / "benchmarks" / "results"
_ALSO = ("uvicorn", "uvloop", "httptools", "hiredis")


def write(done: Mapping[str, Part], *, whole: bool) -> Path:
    """Into ``results``, or for a run of less than everything into its folder ``partial``; the folder."""
    folder = RESULTS if whole else RESULTS / "partial"
    folder.mkdir(parents=True, exist_ok=True)
    about = machine()
    data = {"machine": about, "parts": {name: as_json(part) for name, part in done.items()}}
    (folder / "results.json").write_text(json.dumps(_without_nan(data), indent=1, ensure_ascii=False) + "\n")
    (folder / "results.md").write_text(_markdown(done, about))
    plot(done, folder)
    return folder.relative_to(ROOT)


def table(part: Part) -> str:
    """The part in Markdown; a column that nobody has a figure for is left out."""
    columns = {name: head for name, head in part.columns.items() if any(_has(row, name) for row in part.rows)}
    notes = any(row.error for row in part.rows)
    heads = [head.rpartition("|")[0] for head in columns.values()]
    lines = [["", *heads, *(["error"] if notes else [])], ["---"] + ["---:"] * len(heads) + ["---"] * notes]
    for row in part.rows:
        cells = [_cell(row, name, int(head.rpartition("|")[2])) for name, head in columns.items()]
        lines.append([_title(row.subject), *cells, *([row.error.replace("|", "/")] if notes else [])])
    return "\n".join([f"## {part.title}", "", *("| " + " | ".join(line) + " |" for line in lines)])


def machine() -> dict[str, str]:
    """What it was measured on, without a name of it."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    about = {
        "processor": f"{len(models) or '?'} x {models[0] if models else platform.machine()}",
        "system": platform.system(),
        "python": platform.python_version(),
        "redis-server": ".".join(map(str, version_of(find_redis()))),
        "load generator": load_generator(),
    }
    return about | {name: _version(name) for name in sorted({*_ALSO, *_distributions()})}


def _distributions() -> set[str]:
    return {found.DISTRIBUTION for name in PEERS if (found := working(name))}


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _markdown(done: Mapping[str, Part], about: Mapping[str, str]) -> str:
    parts = [table(part) for part in done.values()]
    listed = "\n".join(f"* {name} {value}" for name, value in about.items())
    notes = "\n".join(f"* {_title_of(name)}: {note}" for name in PEERS if (note := _note(name)))
    head = "# Results\n\nWritten by `scripts/bench`; `benchmarks/README.md` says what the columns mean."
    return "\n\n".join([head, *parts, f"## Of the peers\n\n{notes}", f"## Measured on\n\n{listed}"]) + "\n"


def _title(subject: Subject) -> str:
    return _title_of(subject.peer) + ("" if subject.where == "none" else f", {subject.where}")


def _title_of(name: str) -> str:
    found = working(name)
    return found.TITLE if found else name


def _note(name: str) -> str:
    found = working(name)
    return found.NOTE if found else "does not work with what is installed"


def _has(row: Row, name: str) -> bool:
    return not math.isnan(row.figures.get(name, math.nan))


def _cell(row: Row, name: str, decimals: int) -> str:
    return f"{row.figures[name]:,.{decimals}f}" if _has(row, name) else ""


def _without_nan(value: object) -> object:
    if isinstance(value, dict):
        return {key: _without_nan(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_without_nan(each) for each in value]
    return None if isinstance(value, float) and math.isnan(value) else value
