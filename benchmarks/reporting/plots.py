"""Bars for the figures that matter most."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .results import Part, Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, slots=True)
class Panel:
    """One figure of the subjects over one store."""

    part: str
    where: str
    figure: str
    title: str


PICTURES = {
    "overview": (
        Panel("cpu", "memory", "cpu_64", "Memory: CPU µs more for each request (less is better)"),
        Panel("cpu", "redis", "cpu_64", "Redis, 64 at once: CPU µs more for each request (less is better)"),
        Panel("served", "memory", "of_bare", "Memory, behind uvicorn: throughput, of the bare app (more is better)"),
        Panel("served", "redis", "of_bare", "Redis, behind uvicorn: throughput, of the bare app (more is better)"),
    ),
    "redis": (
        Panel("redis", "redis", "redis_cpu", "CPU µs of Redis for each request, 64 at once (less is better)"),
        Panel("times", "redis", "median_us", "Median µs of a request, one at a time (less is better)"),
        Panel("flood", "redis", "of_bare", "Refusals a second, of what the bare app answers (more is better)"),
        Panel("times", "redis", "rate_1000", "Requests a second, 1,000 at once (more is better)"),
    ),
}
"""The panels of each file."""


def plot(done: Mapping[str, Part], folder: Path) -> None:
    """Write a PNG for each picture whose parts were all measured."""
    for name, panels in PICTURES.items():
        if all(panel.part in done for panel in panels):
            _picture(panels, done, folder / f"{name}.png")


def _picture(panels: Sequence[Panel], done: Mapping[str, Part], path: Path) -> None:
    from matplotlib.figure import Figure  # imported only if a picture is drawn

    picture = Figure(figsize=(13, 7), layout="constrained")
    for axes, panel in zip(picture.subplots(2, 2).flat, panels, strict=True):
        _bars(axes, panel, done[panel.part])
    picture.savefig(path, dpi=80)


def _bars(axes: Axes, panel: Panel, part: Part) -> None:
    rows = [row for row in part.rows if row.subject.where == panel.where and not row.shape][::-1]
    values = [row.figure(panel.figure) for row in rows]
    lengths = [0 if math.isnan(value) else value for value in values]
    bars = axes.barh([row.subject.peer.title for row in rows], lengths, color=[_colour(row) for row in rows])
    axes.bar_label(bars, [_label(value) for value in values], padding=3)
    axes.margins(x=0.14)
    axes.set_title(panel.title, fontsize=10)


def _colour(row: Row) -> str:
    if row.subject.is_of_others:
        return "tab:gray"
    return "lightgray" if row.subject.peer.name == "plain" else "tab:orange"


def _label(value: float) -> str:
    if math.isnan(value):
        return "error"
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}" if value < 1 else f"{value:.1f}"
