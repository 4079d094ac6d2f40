"""What the parts find, and the arithmetic of side by side."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import Any

from .subject import Subject


@dataclass(slots=True)
class Row:
    """The figures of one subject in one part; ``error`` where it has none, or instead of some."""

    subject: Subject
    figures: dict[str, float] = field(default_factory=dict)
    error: str = ""


@dataclass(slots=True)
class Part:
    """One table: its rows, and its columns as ``figure: heading`` with the number of decimals after a ``|``."""

    title: str
    columns: dict[str, str]
    rows: list[Row]


def mid(values: Iterable[float]) -> float:
    """The median; NaN of nothing."""
    found = list(values)
    return median(found) if found else float("nan")


def spread(values: list[float]) -> float:
    """The middle half of them, as a part of the median; NaN of fewer than two."""
    if len(values) < 2:
        return float("nan")
    low, middle, high = quantiles(values)
    return (high - low) / middle


def unexpected(statuses: dict[str, int], expected: Iterable[str]) -> str:
    """The commonest answer that should not have been, with its share; empty if there is none."""
    wrong = {status: count for status, count in statuses.items() if status not in expected}
    if not wrong:
        return ""
    worst = max(wrong, key=lambda status: wrong[status])
    return f"{worst if not worst.isdigit() else 'status ' + worst} ({wrong[worst]} of {sum(statuses.values())})"


def as_json(part: Part) -> dict[str, Any]:
    rows = [{"subject": row.subject.name, **row.figures, "error": row.error} for row in part.rows]
    return {"title": part.title, "rows": rows}
