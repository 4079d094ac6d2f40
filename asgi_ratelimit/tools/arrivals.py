"""When requests arrive: patterns in words, and log files.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ..quotas import SECOND_US, UNITS
from .logs import time_us_of

EXAMPLES = '"20/s", "20/s poisson", "50 every 10 s", and in a row "5/s for 10 s; 40/s for 2 s"'
TIMES = "[10/Oct/2026:13:55:36 +0000], 2026-10-10T13:55:36Z or 1791640536"
MAX_ARRIVALS = 1_000_000
"""The most arrivals in one pattern or log."""

_PHASE = re.compile(
    r"(?P<count>\d+(?:\.\d+)?) \s* (?: / \s* (?P<unit>[a-z]+) (?P<poisson>\s+poisson)?"
    r"| every \s+ (?P<interval>\d+(?:\.\d+)?) \s* (?P<interval_unit>[a-z]+) )"
    r"(?: \s+ for \s+ (?P<length>\d+(?:\.\d+)?) \s* (?P<length_unit>[a-z]+) )?",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Phase:
    """``count`` arrivals in each ``interval`` seconds, for ``length`` seconds: evenly, at random, or all at once."""

    count: float
    interval: float
    length: float
    kind: str

    def times(self, start: float, generator: random.Random) -> Iterator[float]:
        """The arrivals, in seconds, of a phase that begins at ``start``."""
        if self.kind == "poisson":
            time = start
            while (time := time + generator.expovariate(self.count / self.interval)) < start + self.length:
                yield time
            return
        at_once = round(self.count) if self.kind == "burst" else 1
        step = self.interval if self.kind == "burst" else self.interval / self.count
        number = 0
        while number * step < self.length - 1e-9:
            yield from [start + number * step] * at_once
            number += 1


def arrivals(pattern: str, seconds: float, seed: int = 0) -> list[float]:
    """The times, in seconds from 0, of a pattern such as ``"20/s poisson"``.

    ``"20/s"`` is evenly spaced, ``"20/s poisson"`` is random with ``seed``, and ``"50 every 10 s"`` comes in bursts.
    Several phases are joined with ``;``, each ``for`` some time, or for ``seconds``.
    Raises ``ValueError``, which quotes the pattern and shows valid ones.
    """
    generator, times, start = random.Random(seed), list[float](), 0.0
    for text in pattern.split(";"):
        phase = _phase(text.strip(), pattern, seconds)
        if phase.count / phase.interval * phase.length > MAX_ARRIVALS:
            raise ValueError(f"{pattern!r} is more than {MAX_ARRIVALS:,} arrivals: use fewer, or a shorter time")
        times.extend(phase.times(start, generator))
        start += phase.length
    return times


def _phase(text: str, pattern: str, seconds: float) -> Phase:
    words = _PHASE.fullmatch(text.lower())
    units = [] if words is None else [words[name] for name in ("unit", "interval_unit", "length_unit") if words[name]]
    if words is None or not all(unit in UNITS for unit in units) or float(words["count"]) < 1e-6:
        raise ValueError(f"{text!r} in {pattern!r} is not a pattern of arrivals: {EXAMPLES}")
    length = float(words["length"]) * UNITS[words["length_unit"]] if words["length"] else seconds
    if words["unit"]:
        return Phase(float(words["count"]), UNITS[words["unit"]], length, "poisson" if words["poisson"] else "even")
    interval = float(words["interval"]) * UNITS[words["interval_unit"]]
    if interval <= 0:
        raise ValueError(f"{text!r} in {pattern!r} comes every 0 seconds: {EXAMPLES}")
    return Phase(float(words["count"]), interval, length, "burst")


_COMMON = re.compile(r"\[\d{2}/\w{3}/\d{4}:\d{2}:\d{2}:\d{2} [+-]\d{4}\]")
_ISO = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(?:[.,]\d+)?(?:Z|[+-]\d{2}:?\d{2})?")
_UNIX = re.compile(r"\d{9,11}(?:\.\d+)?(?=\s|$)")


def arrivals_in_log(lines: Iterable[str]) -> list[float]:
    """The Unix times of the lines of a log, in order; lines without a time are ignored.

    A time is in the common log format in brackets, in ISO 8601 (UTC by default), or a Unix time at the start of the
    line. Raises ``ValueError`` if no line has a time.
    """
    times = [time for time in map(_time_of, lines) if time is not None]
    if not times:
        raise ValueError(f"no line has a time in a known format: {TIMES}")
    if len(times) > MAX_ARRIVALS:
        raise ValueError(f"the log has more than {MAX_ARRIVALS:,} lines with a time: use a part of it")
    return sorted(times)


def _time_of(line: str) -> float | None:
    match = _COMMON.search(line) or _ISO.search(line) or _UNIX.match(line)
    try:
        return None if match is None else time_us_of(match[0].strip("[]")) / SECOND_US
    except ValueError:
        return None
