"""The line of each key in a TOML text, which ``tomllib`` does not report.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TypeAlias

Place: TypeAlias = tuple[str | int, ...]
"""The keys that lead to a value, with numbers from 0 for the tables of an array."""

_TOKEN = re.compile(r'''"""(?:\\.|[^\\])*?"""|\'\'\'.*?\'\'\'|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|\#[^\n]*|.''', re.DOTALL)
_PART = re.compile(r"""\s*(?:"((?:\\.|[^"\\])*)"|\'([^\']*)\'|([\w-]+))\s*([.=\]]|$)""")


def key_lines(text: str) -> Mapping[Place, int]:
    """The line, counted from 1, of each table and of each key outside inline tables, in a text that is valid TOML."""
    lines: dict[Place, int] = {(): 1}
    counts: dict[Place, int] = {}
    table: Place = ()
    for number, line in _logical_lines(text):
        if line.startswith("["):
            is_array = line.startswith("[[")
            path = _resolved(_parts(line.lstrip("[")), counts, is_array)
            for length in range(1, len(path)):
                lines.setdefault(path[:length], number)
            if is_array:
                lines.setdefault(path, number)
                counts[path] = counts.get(path, -1) + 1
                path = (*path, counts[path])
            table = path
            lines.setdefault(path, number)
        elif line:
            parts = _parts(line)
            for length in range(1, len(parts) + 1):
                lines.setdefault((*table, *parts[:length]), number)
    return lines


def line_of(lines: Mapping[Place, int], place: Place) -> int:
    """The line of a value, or of the nearest table or key around it."""
    while place not in lines:
        place = place[:-1]
    return lines[place]


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their numbers; a value over several lines belongs to the first of them."""
    number, first, depth, line = 1, 1, 0, ""
    for token in _TOKEN.findall(text + "\n"):
        depth += (token in ("[", "{")) - (token in ("]", "}"))
        if token == "\n" and depth == 0:
            yield first, line.strip()
            number, line = number + 1, ""
            first = number
        else:
            number += token.count("\n")
            line += "" if token.startswith("#") else token


def _parts(line: str) -> Place:
    """The parts of a dotted key at the start of a line."""
    parts: list[str] = []
    at = 0
    while (match := _PART.match(line, at)) is not None:
        parts.append(next(part for part in match.groups()[:3] if part is not None))
        at = match.end()
        if match[4] != ".":
            break
    return tuple(parts)


def _resolved(path: Place, counts: Mapping[Place, int], is_array: bool) -> Place:
    """The place of a table: within the latest table of each array on its path."""
    resolved: Place = ()
    for at, part in enumerate(path):
        resolved = (*resolved, part)
        is_last = at == len(path) - 1
        if resolved in counts and not (is_last and is_array):
            resolved = (*resolved, counts[resolved])
    return resolved
