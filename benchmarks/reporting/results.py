"""The results of the parts, and the arithmetic that compares subjects."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import Any, Literal, TypeAlias

from ..subject import Subject

Round: TypeAlias = Mapping[str, float]
NAN = math.nan


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    ``better`` is the direction in which a peer is ahead of ours, if the column ranks subjects at all. Figures that
    differ by no more than ``resolution`` count as equal.
    """

    head: str
    decimals: int = 0
    better: Literal["less", "more"] | None = None
    resolution: float = 0.0


@dataclass(slots=True)
class Row:
    """The figures of one subject in one part; ``error`` says why some or all are missing.

    ``shape`` is the shape of use, where a part has several.
    """

    subject: Subject
    figures: dict[str, float] = field(default_factory=dict)
    error: str = ""
    shape: str = ""

    @property
    def name(self) -> str:
        return self.name_of(self.subject.name)

    @property
    def title(self) -> str:
        return self.name_of(self.subject.title)

    def name_of(self, subject: str) -> str:
        """The name of a subject in the same shape of use."""
        return f"{self.shape}: {subject}" if self.shape else subject

    def figure(self, name: str) -> float:
        """A figure; NaN if it is missing."""
        return self.figures.get(name, NAN)


@dataclass(slots=True)
class Part:
    """One table: its columns by figure, its rows, and a ``note`` above it."""

    name: str
    title: str
    columns: Mapping[str, Column]
    rows: list[Row]
    note: str = ""

    def row(self, name: str) -> Row | None:
        return next((row for row in self.rows if row.name == name), None)


def mid(values: Iterable[float]) -> float:
    """The median, without those that are NaN; NaN if none is left."""
    numbers = [value for value in values if not math.isnan(value)]
    return median(numbers) if numbers else NAN


def best(values: Iterable[float]) -> float:
    """The median of the lowest quarter, for CPU time, which other work can only increase; NaN if there is none."""
    numbers = sorted(value for value in values if not math.isnan(value))
    return mid(numbers[: (len(numbers) + 3) // 4])


def spread(values: Sequence[float]) -> float:
    """The interquartile range divided by the median; NaN of fewer than two values."""
    if len(values) < 2:
        return NAN
    low, middle, high = quantiles(values)
    return (high - low) / middle


def paired(own: Sequence[Round], base: Sequence[Round], figure: str, against: Callable[[float, float], float]) -> float:
    """The median over rounds of ``against(own, base)``; other work on the machine slows both of a round alike."""
    return mid(against(mine[figure], theirs[figure]) for mine, theirs in zip(own, base) if figure in mine)


def over(own: float, base: float) -> float:
    return own / base


def unexpected(statuses: Mapping[str, int], expected: Iterable[str]) -> str:
    """The most frequent answer that was not expected, with its share; empty if there is none."""
    wrong = {status: count for status, count in statuses.items() if status not in expected}
    if not wrong:
        return ""
    worst = max(wrong, key=lambda status: wrong[status])
    text = f"status {worst}" if worst.isdigit() else worst
    return f"{text} ({wrong[worst]:,} of {sum(statuses.values()):,})"


def as_json(part: Part) -> dict[str, Any]:
    """The part for ``json.dumps``, without missing figures."""
    rows = [
        {
            "subject": row.name,
            **{name: float(f"{value:.5g}") for name, value in row.figures.items() if not math.isnan(value)},
            **({"error": row.error} if row.error else {}),
        }
        for row in part.rows
    ]
    return {"title": part.title, "columns": {name: each.head for name, each in part.columns.items()}, "rows": rows}
