"""The output of commands: tables, warnings and JSON. None of it can control a terminal."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias

Row: TypeAlias = Sequence[object]

# The first character of the name of a column whose values are right-aligned.
RIGHT = ">"


def say(text: str) -> None:
    """Print lines of text, ``printable``."""
    print(*map(printable, text.split("\n")), sep="\n")


def warn(text: str, word: str = "warning") -> None:
    """Print lines on standard error, ``printable``."""
    print(*map(printable, f"{word}: {text}".split("\n")), sep="\n", file=sys.stderr)


def print_table(columns: Sequence[str], rows: Iterable[Row]) -> None:
    """Print a table; the values are shown by ``text``, and the names of the columns in bold in a terminal."""
    names = [text(column.lstrip(RIGHT).upper()) for column in columns]
    shown = [[text(value) for value in row] for row in rows]
    widths = [max(map(len, each)) for each in zip(names, *shown)]
    aligns = [RIGHT if column.startswith(RIGHT) else "<" for column in columns]
    for number, row in enumerate([names, *shown]):
        line = "  ".join([f"{value:{align}{width}}" for value, align, width in zip(row, aligns, widths)]).rstrip()
        print(f"\x1b[1m{line}\x1b[0m" if number == 0 and sys.stdout.isatty() else line)


def print_json(value: Any) -> None:
    """Print a value as JSON, in ASCII, so that it cannot control a terminal."""
    print(json.dumps(value, indent=2))


def text(value: object) -> str:
    """A value in a table: large whole numbers with commas, other numbers with at most 6 digits, texts ``printable``."""
    if isinstance(value, (int, float)):
        return f"{value:,.0f}" if float(value).is_integer() else f"{value:.6g}"
    return "" if value is None else printable(str(value))


def printable(text: str) -> str:
    """A text without control characters, which clients may have put into a key: they are shown as in ``repr``."""
    return text if text.isprintable() else "".join([each if each.isprintable() else repr(each)[1:-1] for each in text])


def counted(number: int, word: str) -> str:
    """A number of things: ``1 client``, ``2,000 clients``."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def listed(words: Sequence[str]) -> str:
    """Words as a list in a sentence: ``a, b and c``."""
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def share(part: int, whole: int) -> str:
    """A part of a whole, in percent."""
    percent = 100 * part / whole if whole else 0.0
    return f"{percent:.2f} %" if percent < 10 else f"{percent:.1f} %"


def duration(seconds: float) -> str:
    """Seconds as people write them: ``0.25 s``, ``12 s``, ``3 min 20 s``, ``2 h 5 min``, ``3 d 4 h``, ``never``."""
    if not math.isfinite(seconds):
        return "never"
    if seconds < 10:
        return f"{seconds:.3g} s"
    whole = math.ceil(seconds)
    for size, name, below, below_name in ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // below
            return f"{whole // size} {name}" + (f" {rest} {below_name}" if rest else "")
    return f"{whole} s"


def moment(time: float) -> str:
    """A Unix time as people read it, in UTC."""
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M:%S")
