"""When requests come: patterns in words, and log files.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from ..quotas import UNITS

EXAMPLES = '"20/s", "20/s poisson", "50 every 10 s", and in a row "5/s for 10 s; 40/s for 2 s"'
TIMES = "[10/Oct/2026:13:55:36 +0000], 2026-10-10T13:55:36Z or 1791640536"
MOST = 1_000_000
"""Arrivals in one pattern or log, at the most."""

_PHASE = re.compile(
    r"(?P<count>\d+(?:\.\d+)?) \s* (?: / \s* (?P<unit>[a-z]+) (?P<poisson>\s+poisson)?"
    r"| every \s+ (?P<gap>\d+(?:\.\d+)?) \s* (?P<gap_unit>[a-z]+) )"
    r"(?: \s+ for \s+ (?P<length>\d+(?:\.\d+)?) \s* (?P<length_unit>[a-z]+) )?",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Phase:
    """``count`` arrivals in each ``gap`` seconds, for ``length`` seconds: evenly, by chance, or all at once."""

    count: float
    gap: float
    length: float
    kind: str

    def times(self, start: float, chance: random.Random) -> Iterator[float]:
        """The arrivals, in seconds, of a phase that begins at ``start``."""
        if self.kind == "poisson":
            at = start
            while (at := at + chance.expovariate(self.count / self.gap)) < start + self.length:
                yield at
            return
        at_once = round(self.count) if self.kind == "burst" else 1
        gap = self.gap if self.kind == "burst" else self.gap / self.count
        number = 0
        while number * gap < self.length - 1e-9:
            yield from [start + number * gap] * at_once
            number += 1


def arrivals(pattern: str, seconds: float, seed: int = 0) -> list[float]:
    """The times, in seconds from 0, that a pattern such as ``"20/s poisson"`` stands for.

    ``"20/s"`` is evenly spaced, ``"20/s poisson"`` by chance, which begins with ``seed``, and ``"50 every 10 s"`` comes
    in bursts; phases in a row are joined with ``;``, each ``for`` some time, or for ``seconds``.
    Raises ``ValueError``, which quotes the pattern and shows right ones.
    """
    chance, times, start = random.Random(seed), list[float](), 0.0
    for text in pattern.split(";"):
        phase = _phase(text.strip(), pattern, seconds)
        if phase.count / phase.gap * phase.length > MOST:
            raise ValueError(f"{pattern!r} is more than {MOST:,} arrivals: fewer, or for a shorter time")
        times.extend(phase.times(start, chance))
        start += phase.length
    return times


def _phase(text: str, pattern: str, seconds: float) -> Phase:
    words = _PHASE.fullmatch(text.lower())
    units = [] if words is None else [words[name] for name in ("unit", "gap_unit", "length_unit") if words[name]]
    if words is None or not all(unit in UNITS for unit in units) or float(words["count"]) < 1e-6:
        raise ValueError(f"{text!r} in {pattern!r} is no pattern of arrivals: {EXAMPLES}")
    length = float(words["length"]) * UNITS[words["length_unit"]] if words["length"] else seconds
    if words["unit"]:
        return Phase(float(words["count"]), UNITS[words["unit"]], length, "poisson" if words["poisson"] else "even")
    gap = float(words["gap"]) * UNITS[words["gap_unit"]]
    if gap <= 0:
        raise ValueError(f"{text!r} in {pattern!r} comes every 0 seconds: {EXAMPLES}")
    return Phase(float(words["count"]), gap, length, "burst")


_COMMON = re.compile(r"\[(\d{2}/\w{3}/\d{4}:\d{2}:\d{2}:\d{2} [+-]\d{4})\]")
_ISO = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(?:[.,]\d+)?(?:Z|[+-]\d{2}:?\d{2})?")
_UNIX = re.compile(r"\d{9,11}(?:\.\d+)?(?=\s|$)")


def logged(lines: Iterable[str]) -> list[float]:
    """The Unix times of the lines of a log, in order; lines without one are left out.

    A time is that of the common log format in brackets, one of ISO 8601 (UTC, if it does not say), or a Unix time at
    the beginning of the line. Raises ``ValueError`` where there is none at all.
    """
    times = [at for at in map(_time_of, lines) if at is not None]
    if not times:
        raise ValueError(
            "no line has a time that is known: [10/Oct/2026:13:55:36 +0000], 2026-10-10T13:55:36Z, 1791640536"
        )
    if len(times) > MOST:
        raise ValueError(f"the log has more than {MOST:,} lines with a time: cut a piece out of it")
    return sorted(times)


def _time_of(line: str) -> float | None:
    try:
        if found := _COMMON.search(line):
            return datetime.strptime(found[1], "%d/%b/%Y:%H:%M:%S %z").timestamp()
        if found := _ISO.search(line):
            at = datetime.fromisoformat(found[0].replace(",", "."))
            return (at.replace(tzinfo=UTC) if at.tzinfo is None else at).timestamp()
    except ValueError:
        return None
    found = _UNIX.match(line)
    return float(found[0]) if found else None
