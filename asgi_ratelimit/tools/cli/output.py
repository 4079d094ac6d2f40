"""The output of commands: tables, progress bars and JSON. It has colours in a terminal if rich is installed."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, TypeAlias

Row: TypeAlias = Sequence[object]

RIGHT = ">"
"""The first character of the name of a column whose values are right-aligned."""


def print_table(columns: Sequence[str], rows: Iterable[Row]) -> None:
    """Print a table; the values are shown by ``text``."""
    shown = [[text(value) for value in row] for row in rows]
    rich = _rich_tables() if sys.stdout.isatty() else None
    if rich is not None:
        rich(columns, shown)
        return
    names = [column.lstrip(RIGHT).upper() for column in columns]
    widths = [max(map(len, each)) for each in zip(names, *shown)]
    aligns = [RIGHT if column.startswith(RIGHT) else "<" for column in columns]
    for row in [names, *shown]:
        print("  ".join([f"{value:{align}{width}}" for value, align, width in zip(row, aligns, widths)]).rstrip())


def _rich_tables() -> Callable[[Sequence[str], Sequence[Sequence[str]]], None] | None:
    """A function that prints tables with rich; ``None`` without rich."""
    try:
        from rich.console import Console
        from rich.markup import escape
        from rich.table import Table
    except ImportError:
        return None

    def show(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        table = Table(header_style="bold", box=None, pad_edge=False)
        for column in columns:
            table.add_column(escape(column.lstrip(RIGHT)), justify="right" if column.startswith(RIGHT) else "left")
        for row in rows:
            table.add_row(*map(escape, row))
        Console().print(table)

    return show


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar that grows with each call of the function, if standard error is a terminal and rich is installed."""
    try:
        from rich.console import Console
        from rich.progress import Progress
    except ImportError:
        yield lambda _: None
        return
    is_hidden = not total or not sys.stderr.isatty()
    with Progress(console=Console(stderr=True), transient=True, disable=is_hidden) as bar:
        task = bar.add_task(what, total=total)
        yield lambda count: bar.advance(task, count)


def print_json(value: Any) -> None:
    """Print a value as JSON; infinity and NaN become ``null``."""
    print(json.dumps(_plain(value), indent=2, ensure_ascii=False))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def text(value: object) -> str:
    """A value in a table: large whole numbers with commas, other numbers with at most 6 digits, texts ``printable``."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if value.is_integer() else f"{value:.6g}"
    return "" if value is None else printable(str(value))


def printable(text: str) -> str:
    """A text without control characters, which clients may have put into a key: they are shown as in ``repr``."""
    return text if text.isprintable() else "".join([each if each.isprintable() else repr(each)[1:-1] for each in text])


def counted(number: int, word: str, plural: str = "") -> str:
    """A number of things: ``1 client``, ``2,000 clients``."""
    return f"{number:,} {word if number == 1 else plural or f'{word}s'}"


def share(part: int, whole: int) -> str:
    """A part of a whole, in percent: never 0 % or 100 % unless it is exactly that."""
    percent = 100 * part / whole if whole else 0.0
    if part and percent < 0.01:
        return "< 0.01 %"
    if part < whole and percent > 99.99:
        return "> 99.99 %"
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
