"""What the parts find, and the arithmetic of side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import Any, Literal, TypeAlias

from .subject import Subject

Round: TypeAlias = Mapping[str, float]
NAN = math.nan


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table; ``better`` is what a peer has to be to be ahead of ours, if that says anything."""

    head: str
    decimals: int = 0
    better: Literal["less", "more"] | None = None


@dataclass(slots=True)
class Row:
    """The figures of one subject in one part; ``error`` where it has none, or instead of some."""

    subject: Subject
    figures: dict[str, float] = field(default_factory=dict)
    error: str = ""

    def figure(self, name: str) -> float:
        """A figure; NaN for one that there is not."""
        return self.figures.get(name, NAN)


@dataclass(slots=True)
class Part:
    """One table: its columns by figure, and its rows."""

    name: str
    title: str
    columns: Mapping[str, Column]
    rows: list[Row]

    def row(self, subject: str) -> Row | None:
        return next((row for row in self.rows if row.subject.name == subject), None)


def mid(values: Iterable[float]) -> float:
    """The median of those that are numbers; NaN of nothing."""
    found = [value for value in values if not math.isnan(value)]
    return median(found) if found else NAN


def best(values: Iterable[float]) -> float:
    """The median of the least quarter; NaN of nothing. For CPU time, to which other work can only add."""
    found = sorted(value for value in values if not math.isnan(value))
    return mid(found[: (len(found) + 3) // 4])


def spread(values: Sequence[float]) -> float:
    """The middle half of them, as a part of the median; NaN of fewer than two."""
    if len(values) < 2:
        return NAN
    low, middle, high = quantiles(values)
    return (high - low) / middle


def paired(own: Sequence[Round], base: Sequence[Round], figure: str, against: Callable[[float, float], float]) -> float:
    """The median of what each round gives against the same round of another subject.

    What the machine does besides befalls neighbours in time alike, and cancels out.
    """
    return mid(against(mine[figure], theirs[figure]) for mine, theirs in zip(own, base) if figure in mine)


def over(own: float, base: float) -> float:
    return own / base


def unexpected(statuses: Mapping[str, int], expected: Iterable[str]) -> str:
    """The commonest answer that should not have been, with its share; empty if there is none."""
    wrong = {status: count for status, count in statuses.items() if status not in expected}
    if not wrong:
        return ""
    worst = max(wrong, key=lambda status: wrong[status])
    text = f"status {worst}" if worst.isdigit() else worst
    return f"{text} ({wrong[worst]:,} of {sum(statuses.values()):,})"


def as_json(part: Part) -> dict[str, Any]:
    """The part for ``json.dumps``: a figure that there is not is left out."""
    rows = [
        {
            "subject": row.subject.name,
            **{name: float(f"{value:.5g}") for name, value in row.figures.items() if not math.isnan(value)},
            **({"error": row.error} if row.error else {}),
        }
        for row in part.rows
    ]
    return {"title": part.title, "columns": {name: each.head for name, each in part.columns.items()}, "rows": rows}
