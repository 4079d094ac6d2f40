"""Timelines of a simulation, as text, or as a PNG drawn with matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from ..errors import to_install

Series: TypeAlias = Mapping[str, Sequence[float | None]]
"""Times in seconds, by the name of their series; ``None`` stands for a refused request."""
Histograms: TypeAlias = Mapping[str, Sequence[int]]
"""How many times are in each of the equal parts of the whole time, by the name of the series."""

BARS = " ▁▂▃▄▅▆▇█"
WIDTH = 60
"""Characters of a timeline, each one part of the time."""
BINS = 200
"""Parts of the time in a PNG."""


def timeline(series: Series, width: int = WIDTH) -> list[str]:
    """A row of bars for each series, whose height shows how many times are in each part, and a row with the seconds."""
    start, end = span(series)
    histograms = {name: counts(times, start, end, width) for name, times in series.items()}
    return bars(histograms, "0", f"{end - start:.6g} s")


def bars(histograms: Histograms, start: str, end: str) -> list[str]:
    """A row of bars for each histogram, and a row with the names of the start and the end."""
    most = max(max(histogram) for histogram in histograms.values())
    label, width = max(map(len, histograms)), max(map(len, histograms.values()))
    rows = [f"{name:<{label}}  {''.join(_bar(count, most) for count in bins)}" for name, bins in histograms.items()]
    return [*rows, f"{'':<{label}}  {start}{end:>{max(width - len(start), len(end))}}"]


def span(series: Series) -> tuple[float, float]:
    """The first and the last of all times, at least a second apart."""
    times = [time for each in series.values() for time in each if time is not None]
    start, end = min(times), max(times)
    return start, max(end, start + 1.0)


def counts(times: Sequence[float | None], start: float, end: float, bins: int) -> list[int]:
    """How many of the times are in each of ``bins`` equal parts from ``start`` to ``end``, both included."""
    histogram = [0] * bins
    for time in times:
        if time is not None and start <= time <= end:
            histogram[min(int((time - start) / (end - start) * bins), bins - 1)] += 1
    return histogram


def _bar(count: int, most: int) -> str:
    """A block character for a count; every count above 0 is visible."""
    return BARS[max(round(count / most * (len(BARS) - 1)), int(count > 0))] if most else BARS[0]


def save_png(path: Path, series: Series) -> None:
    """Draw the rates of the series, in requests a second. Raises ``ImportError`` without matplotlib."""
    start, end = span(series)
    save_bars(path, {name: counts(times, start, end, BINS) for name, times in series.items()}, end - start)


def figure_class() -> Any:
    """The class that draws a PNG. Raises ``ImportError`` without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(f"a PNG needs matplotlib: {to_install('plot')}, or omit --png") from error
    return Figure


def save_bars(path: Path, histograms: Histograms, seconds: float) -> None:
    """Draw histograms over ``seconds``, in requests a second. Raises ``ImportError`` without matplotlib."""
    figure = figure_class()(figsize=(9, 4), layout="constrained")
    axes = figure.add_subplot(xlabel="seconds", ylabel="requests a second")
    for name, histogram in histograms.items():
        step = seconds / len(histogram)
        axes.step(
            [number * step for number in range(len(histogram))],
            [count / step for count in histogram],
            where="post",
            label=name,
        )
    axes.legend()
    figure.savefig(path, format="png")
