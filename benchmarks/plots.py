"""Bars for the figures that matter most; one picture each."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from .results import Part

PICTURES = {
    "cpu": ("inprocess", "cpu_64", "CPU µs more for each request, 64 at once (less is better)"),
    "latency": ("inprocess", "times_1", "median latency at 1 at a time, times the bare app (less is better)"),
    "redis": (
        "inprocess",
        "redis_cpu_plain",
        "Redis CPU for each request at 64, times plain EVALSHA (less is better)",
    ),
    "served": ("served", "of_bare", "throughput behind uvicorn, of the bare app (more is better)"),
    "flood": ("flood", "of_bare", "refusals a second, of what the bare app answers (more is better)"),
    "memory": ("memory", "bytes_50", "bytes in Redis for each client after 50 requests (less is better)"),
}


def plot(done: Mapping[str, Part], folder: Path) -> None:
    for file, (part, figure, title) in PICTURES.items():
        if part in done:
            _bars(done[part], figure, title, folder / f"{file}.png")


def _bars(part: Part, figure: str, title: str, path: Path) -> None:
    from matplotlib.figure import Figure

    rows = [row for row in part.rows if not math.isnan(row.figures.get(figure, math.nan))]
    rows = [row for row in rows if row.subject.where != "none"][::-1]
    if not rows:
        return
    picture = Figure(figsize=(8, 1 + 0.3 * len(rows)), layout="constrained")
    axes = picture.add_subplot()
    colours = ["tab:orange" if row.subject.peer == "ours" else "tab:gray" for row in rows]
    bars = axes.barh([row.subject.name for row in rows], [row.figures[figure] for row in rows], color=colours)
    axes.bar_label(bars, fmt="%.2f", padding=3)
    axes.margins(x=0.12)
    axes.set_title(title, fontsize=10)
    picture.savefig(path, dpi=110)
