"""What ours is to reach, and where a peer is ahead of it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from .results import NAN, Column, Part, Row

TIE = 0.03
"""A peer is ahead from so much on, as a part of ours; and less than that says nothing."""


@dataclass(frozen=True, slots=True)
class Goal:
    """A figure of ours that is to be at most, or at least, so much; ``subject`` ``"peers"`` is the best of them."""

    what: str
    part: str
    subject: str
    figure: str
    sign: Literal["<=", ">="]
    bound: float
    decimals: int = 2

    def measured(self, done: Mapping[str, Part]) -> float:
        """The figure; NaN where there is none."""
        part = done.get(self.part)
        if part is None:
            return NAN
        if self.subject == "peers":
            return _best_of_peers(part, self.figure)
        row = part.row(self.subject)
        return row.figure(self.figure) if row else NAN

    def is_reached(self, measured: float) -> bool:
        """Whether what is shown of it is enough."""
        shown = round(measured, self.decimals)
        return shown <= self.bound if self.sign == "<=" else shown >= self.bound


_SCALED = "on a machine whose bare app takes 7 µs"

GOALS = (
    Goal("CPU µs more than the bare app, memory, 64 at once", "cpu", "ours memory", "cpu_64", "<=", 4, 1),
    Goal(f"the same, {_SCALED}", "cpu", "ours memory", "scaled_64", "<=", 4, 1),
    Goal("CPU µs more than the bare app, Redis, 64 at once", "cpu", "ours redis", "cpu_64", "<=", 7, 1),
    Goal(f"the same, {_SCALED}", "cpu", "ours redis", "scaled_64", "<=", 7, 1),
    Goal("throughput, Redis, 64 at once, times plain EVALSHA", "times", "ours redis", "throughput_plain", ">=", 3),
    Goal("median latency, Redis, 1 at once, times plain", "times", "ours redis", "latency_plain", "<=", 1.15),
    Goal("Redis CPU, 64 at once, times plain", "redis", "ours redis", "redis_cpu_plain", "<=", 0.2),
    Goal("connections, 1,000 at once (and no error)", "redis", "ours redis", "connections", "<=", 2, 0),
    Goal("refused key: EVALs a second", "flood", "ours redis", "scripts", "<=", 2, 1),
    Goal("refused key: answers a second, of the bare app, Redis", "flood", "ours redis", "of_bare", ">=", 1),
    Goal("refused key: answers a second, of the bare app, memory", "flood", "ours memory", "of_bare", ">=", 1),
    Goal("behind uvicorn, Redis: throughput, of the bare app", "served", "ours redis", "of_bare", ">=", 0.7),
    Goal("behind uvicorn, Redis: the best peer, of ours", "served", "peers", "of_ours", "<=", 1),
    Goal("Redis memory for each key, bytes", "memory", "ours redis", "bytes_50", "<=", 120, 0),
    Goal("ten times the quota: let through / allowed, memory", "admission", "ours memory", "ratio", "<=", 1, 3),
    Goal("ten times the quota: let through / allowed, Redis", "admission", "ours redis", "ratio", "<=", 1, 3),
)


@dataclass(frozen=True, slots=True)
class Ahead:
    """A figure in which a peer is ahead of ours, over the same store and on the same bare app."""

    part: str
    column: Column
    peer: Row
    figure: float
    ours: float
    no_headers: float
    """Ours without headers, where that was measured."""

    def __str__(self) -> str:
        also = "" if math.isnan(self.no_headers) else f", without headers {self._shown(self.no_headers)}"
        figures = f"{self._shown(self.figure)}, ours {self._shown(self.ours)}{also}"
        return f"{self.part}, {self.column.head}: {self.peer.subject.title} {figures}"

    def _shown(self, figure: float) -> str:
        return f"{figure:,.{self.column.decimals}f}"


def ahead(done: Mapping[str, Part]) -> Iterator[Ahead]:
    """All of them, by part, column and row."""
    for part in done.values():
        for name, column in part.columns.items():
            for row in part.rows:
                ours, bare = _ours(part, row, name)
                if is_ahead(row.figure(name), ours, column):
                    yield Ahead(part.title, column, row, row.figure(name), ours, bare)


def _ours(part: Part, row: Row, figure: str) -> tuple[float, float]:
    """That of ours to compare a peer's with, and that without headers; NaN for what is not a peer's."""
    if not row.subject.is_of_others:
        return NAN, NAN
    found = part.row(row.subject.ours), part.row(f"ours_no_headers {row.subject.where}")
    ours, bare = (each.figure(figure) if each else NAN for each in found)
    return ours, bare if row.subject.base == "bare" else NAN


def is_ahead(figure: float, ours: float, column: Column) -> bool:
    """Whether it is better than ours by more than ``TIE``."""
    if column.better == "less":
        return figure < ours * (1 - TIE)
    return column.better == "more" and figure > ours * (1 + TIE)


def _best_of_peers(part: Part, figure: str) -> float:
    found = [row.figure(figure) for row in part.rows if row.subject.is_of_others and row.subject.where == "redis"]
    return max((each for each in found if not math.isnan(each)), default=NAN)
