"""Rows and tables with given figures."""

from __future__ import annotations

from benchmarks.parts import inprocess
from benchmarks.reporting.results import Part, Row
from benchmarks.subject import PEERS, Subject, Where


def row(peer: str, where: Where, error: str = "", shape: str = "", **figures: float) -> Row:
    return Row(Subject(PEERS[peer], where), dict(figures), error, shape)


def in_process(*rows: Row) -> dict[str, Part]:
    parts = Part("cpu", "CPU", inprocess.CPU, list(rows)), Part("times", "Times", inprocess.TIMES, list(rows))
    return {part.name: part for part in parts}
