"""The sources in an answer: a header, a parameter of a header, or a part of its body.

Whatever an answer contains, reading it takes time that grows no faster than its size, and raises no exception.
No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any, TypeAlias

from ..profiles.definitions import Sign, Sources, each_source

Headers: TypeAlias = Mapping[str, str] | Iterable[tuple[str | bytes, str | bytes]]
"""A mapping, such as ``httpx.Headers``, or pairs; names in any case."""

MAX_HEADERS = 256
"""The most lines of headers that are read."""

LONGEST_NAME = 128
"""The most characters of the name of a header that is read."""

LONGEST_VALUE = 4096
"""The most characters of the value of a header that is read, after all of its lines have been joined."""

MAX_PARTS = 64
"""The most parameters of a header, names that ``{name}`` stands for, and items of a list in a body."""

LARGEST_NUMBER = 1e15
"""The largest number of a body that is read."""


class Answer:
    """The status, headers and body of an answer, to be read by source. A ``body`` is the value of its JSON.

    ``headers`` are by name, in lower case.
    """

    __slots__ = ("_body", "headers", "status")

    def __init__(self, status: int, headers: Headers, body: object = None) -> None:
        self.status = status
        self.headers = _by_name(headers)
        self._body = body

    def text(self, sources: Sources, name: str = "") -> str | None:
        """The text of the first source that has one, with ``{name}`` filled in."""
        return next(iter(self.texts(sources, name)), None)

    def texts(self, sources: Sources, name: str = "") -> list[str]:
        """The texts of each source."""
        found: list[str] = []
        for source in each_source(sources):
            path = source.replace("{name}", name) if isinstance(source, str) else ""
            if not isinstance(source, str):
                found.append(repr(source))
            elif path.startswith("body:"):
                found += _texts_in(self._body, path[5:])
            else:
                header, _, parameter = path.partition("#")
                text = self.headers.get(header)
                if text is not None and parameter:
                    text = _parameters(text).get(parameter)
                found += [] if text is None else [text]
        return found

    def has(self, sign: Sign, name: str = "") -> bool:
        """Whether a source has a text, in any case; ``*`` at an end of the text stands for any other text."""
        texts = [text.lower() for text in self.texts(sign[0], name) if text]
        return any(fnmatchcase(text, sign[1].lower()) for text in texts) if sign[1] else not texts

    def names(self, templates: Iterable[str]) -> list[str]:
        """What ``{name}`` stands for in any of these sources, in their order."""
        names: dict[str, None] = {}
        for template in templates:
            header, _, parameter = template.partition("#")
            if parameter == "{name}":
                names.update(dict.fromkeys(_parameters(self.headers.get(header, ""))))
            else:
                before, _, after = header.partition("{name}")
                starting = [each.removeprefix(before) for each in self.headers if each.startswith(before)]
                names.update((each.removesuffix(after), None) for each in starting if each.endswith(after))
        names.pop("", None)
        return list(names)[:MAX_PARTS]


def _by_name(headers: Headers) -> dict[str, str]:
    """The values by name in lower case; the lines of one name are joined with a comma (RFC 9110, section 5.3)."""
    lines: dict[str, list[str]] = {}
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    for name, value in islice(pairs, MAX_HEADERS):
        lines.setdefault(_decoded(name).lower(), []).append(_decoded(value))
    joined = {name: ", ".join(values) for name, values in lines.items() if len(name) <= LONGEST_NAME}
    return {name: value.strip() for name, value in joined.items() if len(value) <= LONGEST_VALUE}


def _decoded(text: str | bytes) -> str:
    return text.decode("latin-1") if isinstance(text, bytes) else text


def _parameters(text: str) -> dict[str, str]:
    """``total=100; remaining=99`` by name, ``reads;159,writes;12`` by name, or ``32/40`` by position."""
    if "=" in text:
        pairs = [part.partition("=")[::2] for part in re.split("[;,]", text, maxsplit=MAX_PARTS)]
    elif ";" in text:
        pairs = [part.partition(";")[::2] for part in text.split(",", MAX_PARTS)]
    else:
        pairs = [(str(position), part) for position, part in enumerate(text.split("/", MAX_PARTS))]
    return {name.strip().lower(): value.strip() for name, value in pairs[:MAX_PARTS]}


def _texts_in(body: object, path: str) -> list[str]:
    """The texts at a dotted path in a body."""
    nodes: list[Any] = [body]
    for step in path.split("."):
        nodes = [child for node in nodes for child in _children(node, step)][:MAX_PARTS]
    return [text for node in nodes if (text := _scalar(node)) is not None]


def _children(node: object, step: str) -> list[Any]:
    if isinstance(node, dict):
        return [node[step]] if step in node else []
    if isinstance(node, list):
        return node[:MAX_PARTS] if step == "*" else node[int(step) : int(step) + 1] if step.isdecimal() else []
    return []


def _scalar(value: object) -> str | None:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float | int):
        return repr(value) if abs(value) <= LARGEST_NUMBER else None
    return value[:LONGEST_VALUE] if isinstance(value, str) else None
