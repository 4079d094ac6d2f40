"""The goals of this project, and the figures in which a peer is ahead."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from .results import NAN, Column, Part, Row

TIE = 0.03
"""Figures that differ by less than this part of ours count as equal."""


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound on a figure of ours; ``subject`` ``"peers"`` means the best of the peers.

    Of several parts the worst figure counts.
    """

    what: str
    part: str | tuple[str, ...]
    subject: str
    figure: str
    sign: Literal["<=", ">="]
    bound: float
    decimals: int = 2

    def measured(self, done: Mapping[str, Part]) -> float:
        """The figure; NaN if it is missing."""
        names = (self.part,) if isinstance(self.part, str) else self.part
        figures = [self._figure(done[name]) for name in names if name in done]
        worst = max if self.sign == "<=" else min
        return worst((each for each in figures if not math.isnan(each)), default=NAN)

    def _figure(self, part: Part) -> float:
        if self.subject == "peers":
            return _best_of_peers(part, self.figure)
        row = part.row(self.subject)
        return row.figure(self.figure) if row else NAN

    def is_reached(self, measured: float) -> bool:
        """Whether the figure, rounded as shown, keeps the bound."""
        shown = round(measured, self.decimals)
        return shown <= self.bound if self.sign == "<=" else shown >= self.bound


_SCALED = "scaled to 7 µs of bare"
_CLIENTS = tuple(f"clients_{clients}" for clients in (100, 10_000, 100_000, 1_000_000))


def _of_shapes(where: str, single: float, charge: float) -> Iterator[Goal]:
    """CPU goals over one store, for a single quota and for each further charge."""
    ours = f"ours {where.lower()}"
    yield Goal(f"single, {where}: CPU µs more, {_SCALED}", "shapes", f"single: {ours}", "scaled", "<=", single, 1)
    for shape in ("default+rule", "three quotas"):
        what = f"{shape}, {where}: CPU µs for each further charge, {_SCALED}"
        yield Goal(what, "shapes", f"{shape}: {ours}", "charge", "<=", charge, 1)
    what = f"single, {where}: CPU of many new clients / of known ones"
    yield Goal(what, "shapes", f"single: {ours}", "growth", "<=", 1.5)


GOALS = (
    *_of_shapes("memory", 5, 3),
    *(
        Goal(
            f"{shape}, memory: CPU µs more than single, {_SCALED}",
            "shapes",
            f"{shape}: ours memory",
            "over_single",
            "<=",
            bound,
            1,
        )
        for shape, bound in (("tier", 5), ("cost", 5), ("settle", 10))
    ),
    Goal("single, memory: with headers / limits without", "shapes", "single: limits memory", "ours_known", "<=", 1.3),
    Goal("default+rule, memory / limits called twice", "shapes", "default+rule: limits memory", "ours_known", "<=", 1),
    *_of_shapes("Redis", 9, 4),
    Goal("single: CPU of Redis / plain EVALSHA", "shapes", "single: plain redis", "redis_ours", "<=", 0.35),
    Goal("default+rule: CPU of Redis / two EVALSHA", "shapes", "default+rule: plain redis", "redis_ours", "<=", 0.3),
    Goal("throughput, Redis, 64 at once, times plain EVALSHA", "times", "ours redis", "throughput_plain", ">=", 3),
    Goal("median latency, Redis, 1 at once, times plain", "times", "ours redis", "latency_plain", "<=", 1.15),
    Goal("connections, 1,000 at once (and no error)", "redis", "ours redis", "connections", "<=", 2, 0),
    Goal("refused key: EVALSHAs a second", "flood", "ours redis", "takes", "<=", 2, 1),
    Goal("refused key: answers a second, of the bare app, Redis", "flood", "ours redis", "of_bare", ">=", 1),
    Goal("refused key: answers a second, of the bare app, memory", "flood", "ours memory", "of_bare", ">=", 1),
    Goal("behind uvicorn, Redis: throughput, of the bare app", "served", "ours redis", "of_bare", ">=", 0.7),
    Goal(
        "behind uvicorn, Redis, default+rule: throughput, of the bare app",
        "served",
        "default+rule: ours redis",
        "of_bare",
        ">=",
        0.7,
    ),
    Goal("behind uvicorn, Redis: the best peer, of ours", "served", "peers", "of_ours", "<=", 1),
    Goal("Redis memory for each key, bytes", "memory", "ours redis", "bytes_50", "<=", 136, 0),
    *(
        Goal(
            f"throughput, Redis, any number of clients, {phase}, times plain",
            _CLIENTS,
            "ours redis",
            f"throughput_{phase}",
            ">=",
            3,
        )
        for phase in ("new", "again")
    ),
    *(
        Goal(
            f"longest pause of the event loop, ms more, {where}", _CLIENTS, f"ours {where.lower()}", "pause", "<=", 5, 1
        )
        for where in ("memory", "Redis")
    ),
    Goal("process memory for each of 100,000 clients, bytes", "clients_100000", "ours memory", "bytes", "<=", 250, 0),
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
        return f"{self.part}, {self.column.head}: {self.peer.title} {figures}"

    def _shown(self, figure: float) -> str:
        return f"{figure:,.{self.column.decimals}f}"


def ahead(done: Mapping[str, Part]) -> Iterator[Ahead]:
    """Yield each such figure, by part, column and row."""
    for part in done.values():
        for name, column in part.columns.items():
            for row in part.rows:
                ours, no_headers = _ours(part, row, name)
                if is_ahead(row.figure(name), ours, column):
                    yield Ahead(part.title, column, row, row.figure(name), ours, no_headers)


def _ours(part: Part, row: Row, figure: str) -> tuple[float, float]:
    """The figures of ours to compare a peer's with: with headers and without; NaN if the row is not a peer's."""
    if not row.subject.is_of_others:
        return NAN, NAN
    rows = [part.row(row.name_of(name)) for name in (row.subject.ours, f"ours_no_headers {row.subject.where}")]
    ours, no_headers = (each.figure(figure) if each else NAN for each in rows)
    return ours, no_headers if row.subject.base == "bare" else NAN


def is_ahead(figure: float, ours: float, column: Column) -> bool:
    """Whether it is better than ours by more than ``TIE`` and the resolution of the column."""
    margin = max(abs(ours) * TIE, column.resolution)
    if column.better == "less":
        return figure < ours - margin
    return column.better == "more" and figure > ours + margin


def _best_of_peers(part: Part, figure: str) -> float:
    figures = [row.figure(figure) for row in part.rows if row.subject.is_of_others and row.subject.where == "redis"]
    return max((each for each in figures if not math.isnan(each)), default=NAN)
