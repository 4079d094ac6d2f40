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


class Answer:
    """The headers and the body of an answer, to be read by source. A ``body`` is the value of its JSON.

    ``headers`` are by name, in lower case.
    """

    __slots__ = ("_body", "headers")

    def __init__(self, headers: Headers, body: object) -> None:
        self.headers = _by_name(headers)
        self._body = body

    def text(self, sources: Sources, name: str = "") -> str | None:
        """The text of the first source that has one, with ``{name}`` filled in."""
        return next(iter(self.texts(sources, name)), None)

    def texts(self, sources: Sources, name: str = "") -> list[str]:
        """The texts of each source."""
        found: list[str] = []
        for source in each_source(sources):
            path = str(source).replace("{name}", name)
            header, _, parameter = path.partition("#")
            if not isinstance(source, str):
                found.append(path)
            elif path.startswith("body:"):
                found += _texts_in(self._body, path[5:])
            elif header in self.headers:
                text = self.headers[header]
                found += filter(None, [_parameters(text).get(parameter)]) if parameter else [text]
        return found

    def has(self, sign: Sign, name: str = "") -> bool:
        """Whether a source has a text, in any case; ``*`` at an end of the text stands for any other text."""
        texts = [text.lower() for text in self.texts(sign[0], name) if text]
        return any(fnmatchcase(text, sign[1].lower()) for text in texts) if sign[1] else not texts

    def names(self, templates: Iterable[str]) -> list[str]:
        """What ``{name}`` stands for in any of these sources, in their order."""
        names: list[str] = []
        for template in templates:
            header, _, parameter = template.partition("#")
            before, _, after = header.partition("{name}")
            if parameter == "{name}":
                names += _parameters(self.headers.get(header, ""))
            else:
                starting = [each.removeprefix(before) for each in self.headers if each.startswith(before)]
                names += [each.removesuffix(after) for each in starting if each.endswith(after)]
        return list(dict.fromkeys(filter(None, names)))[:MAX_PARTS]


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
    """The texts, numbers and truth values at a dotted path in a body."""
    nodes: list[Any] = [body]
    for step in path.split("."):
        if step == "*":
            children = [child for node in nodes if isinstance(node, list) for child in node[:MAX_PARTS]]
        else:
            children = [node[step] for node in nodes if isinstance(node, dict) and step in node]
        nodes = children[:MAX_PARTS]
    return [str(node)[:LONGEST_VALUE] for node in nodes if isinstance(node, str | int | float)]
