"""Drawings of a simulation: as lines of text, or as a PNG by matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

Series: TypeAlias = Mapping[str, Sequence[float | None]]
"""Times in seconds, by what they are of; ``None`` for what never was."""

BARS = " ▁▂▃▄▅▆▇█"
WIDTH = 60
"""Characters of a line, each a part of the time."""
BINS = 200
"""Parts of the time in a PNG."""


def drawn(series: Series, width: int = WIDTH) -> list[str]:
    """One line for each series of times, its height showing how many lie in each part, and a line with the seconds."""
    start, end = span(series)
    tables = {name: counts(times, start, end, width) for name, times in series.items()}
    most = max(max(table) for table in tables.values())
    label = max(map(len, tables))
    lines = [f"{name:<{label}}  {''.join(_bar(count, most) for count in table)}" for name, table in tables.items()]
    last = f"{end - start:.6g} s"
    return [*lines, f"{'':<{label}}  0{last:>{width - 1}}"]


def span(series: Series) -> tuple[float, float]:
    """The first and the last of all times, at least a second apart."""
    times = [at for each in series.values() for at in each if at is not None]
    start, end = min(times), max(times)
    return start, max(end, start + 1.0)


def counts(times: Sequence[float | None], start: float, end: float, bins: int) -> list[int]:
    """How many of the times lie in each of so many equal parts from ``start`` to ``end``, both included."""
    found = [0] * bins
    for at in times:
        if at is not None and start <= at <= end:
            found[min(int((at - start) / (end - start) * bins), bins - 1)] += 1
    return found


def _bar(count: int, most: int) -> str:
    """A block for a count; anything above 0 is seen."""
    return BARS[max(round(count / most * (len(BARS) - 1)), int(count > 0))]


def save_png(path: Path, series: Series) -> None:
    """Draw the rates of the series, in requests a second. Raises ``ImportError`` where there is no matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            'a PNG needs matplotlib: pip install "asgi-ratelimit-pacer[plot]", or leave --png out'
        ) from error
    start, end = span(series)
    step = (end - start) / BINS
    figure = Figure(figsize=(9, 4), layout="constrained")
    axes = figure.add_subplot(xlabel="seconds", ylabel="requests a second")
    for name, times in series.items():
        rates = [count / step for count in counts(times, start, end, BINS)]
        axes.step([number * step for number in range(BINS)], rates, where="post", label=name)
    axes.legend()
    figure.savefig(path, format="png")
