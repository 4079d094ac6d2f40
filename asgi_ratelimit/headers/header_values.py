"""What an answer says: texts by source, in headers and the body, and the numbers, times and lists in these texts.

Whatever an answer contains, reading it takes time that grows no faster than its size, and raises no exception.
An unreadable text is ``None``. No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from email.message import Message
from email.utils import parsedate_to_datetime
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

from ..profiles.definitions import Sign, Source, Sources, Unit, each_source

# A mapping, such as ``httpx.Headers``, the message of ``urllib``, or pairs; names in any case.
Headers: TypeAlias = Mapping[str, str] | Message | Iterable[tuple[str | bytes, str | bytes]]

# The most lines of headers that are read.
MAX_HEADERS = 256

# The most characters of the value of a header that is read, after all of its lines have been joined.
LONGEST_VALUE = 4096

# The most characters of a number, a time, or the name of a header.
LONGEST_TEXT = 100

# A larger number is none.
MAX_NUMBER = 1e15

# The most limits, items of a list, parameters of a header, and names that ``{name}`` stands for.
MAX_PARTS = 64

# From here on, a time without a unit is in seconds since 1970 ...
EPOCH_SECONDS = 1e9

# ... and from here on in milliseconds. Anything smaller is seconds from now.
EPOCH_MILLISECONDS = 1e11


class Answer:
    """The headers and the body of an answer, to be read by source. A ``body`` is the value of its JSON.

    ``headers`` are by name, in lower case.
    """

    def __init__(self, headers: Headers, body: object) -> None:
        self.headers = _by_name(headers)
        self._body = body

    def text(self, sources: Sources, name: str = "") -> str | None:
        """The text of the first source that has one, with ``{name}`` filled in."""
        return next(iter(self.texts(sources, name)), None)

    def texts(self, sources: Sources, name: str = "") -> list[str]:
        """The texts of each source."""
        texts: list[str] = []
        for source in each_source(sources):
            path = str(source).replace("{name}", name)
            header, _, parameter = path.partition("#")
            text = self.headers.get(header.lower(), "")
            if not isinstance(source, str):
                texts.append(path)
            elif path.startswith("body:"):
                texts += _texts_in(self._body, path[5:])
            else:
                texts.append(_parameters(text).get(parameter.lower(), "") if parameter else text)
        return list(filter(None, texts))

    def has(self, sign: Sign, name: str = "") -> bool:
        """Whether a source has a text, in any case; ``*`` at an end of the text stands for any other text."""
        texts, pattern = self.texts(sign[0], name), sign[1].lower().replace("[", "[[]").replace("?", "[?]")
        return any(fnmatchcase(text.lower(), pattern) for text in texts) if pattern else not texts

    def names(self, sources: Iterable[Source]) -> list[str]:
        """What ``{name}`` stands for in any of these sources, in their order."""
        names: list[str] = []
        for template in [source for source in sources if isinstance(source, str) and "{name}" in source]:
            header, _, parameter = template.lower().partition("#")
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
    pairs = headers.items() if isinstance(headers, (Mapping, Message)) else headers
    for pair in islice(pairs, MAX_HEADERS):
        name, value = [text.decode("latin-1") if isinstance(text, bytes) else text for text in pair]
        lines.setdefault(name.lower(), []).append(value)
    joined = {name: ", ".join(values) for name, values in lines.items() if len(name) <= LONGEST_TEXT}
    return {name: value.strip() for name, value in joined.items() if len(value) <= LONGEST_VALUE}


_PAIR = re.compile(r"(?:^|[;,])([^=;,]*)[=;]([^;,]*)")


def _parameters(text: str) -> dict[str, str]:
    """``total=100; remaining=99`` by name, ``reads;159,writes;12`` by name, or ``32/40`` by position."""
    pairs = _PAIR.findall(text) or enumerate(text.split("/"))
    return {str(name).strip().lower(): value.strip() for name, value in islice(pairs, MAX_PARTS)}


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


_NUMBER = re.compile(r"([+-]?[0-9]{1,20}(?:\.[0-9]{0,20})?(?:[eE][+-]?[0-9]{1,2})?)[ ]*(?:;.*|(?:, \1)+)?")
_DURATION = re.compile(r"(?:[0-9]{1,15}(?:\.[0-9]{0,15})?(?:d|h|ms|m|s|us|µs|ns))+")
_PART_OF_DURATION = re.compile(r"([0-9.]+)([a-zµ]+)")
_SECONDS = {"d": 86_400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_TO_THE_MINUTE = re.compile(r"[^:]*:[0-9]{2}(?![0-9:]).*")
_JAVASCRIPT = re.compile(r"[A-Za-z]{3} ([A-Za-z]{3} [0-9]{1,2}) ([0-9]{4}) ([0-9:]{8}) (?:GMT|UTC)([+-][0-9]{4}).*")


def number(text: str | None) -> float | None:
    """A decimal number, perhaps with the parameters of a structured field: ``76;w=21600``."""
    match = _NUMBER.fullmatch(text.strip()) if text and len(text) <= LONGEST_TEXT else None
    return float(match[1]) if match and abs(float(match[1])) <= MAX_NUMBER else None


def duration(text: str) -> float | None:
    """Seconds of a duration in Go's form: ``1s``, ``6m0s``, ``20ms``, ``1h2.5s``."""
    text = text.strip()
    if len(text) > LONGEST_TEXT or not _DURATION.fullmatch(text):
        return None
    return sum(float(units) * _SECONDS[unit] for units, unit in _PART_OF_DURATION.findall(text))


def unix_time(text: str | None) -> float | None:
    """The Unix time of a date: ISO 8601, an HTTP-date in any of its three forms, or JavaScript's form.

    A date of ISO 8601 to the minute is the end of that minute. A date without a time zone is in UTC.
    """
    text = (text or "").strip()
    if not text or len(text) > LONGEST_TEXT:
        return None
    is_iso = text[0].isdigit()
    try:
        if is_iso:
            at = datetime.fromisoformat(re.sub(r" (?=[+-])", "", text).upper())
        else:
            at = parsedate_to_datetime(_JAVASCRIPT.sub(r"\1 \3 \2 \4", text))
        at = at.replace(tzinfo=UTC) if at.tzinfo is None else at
        return at.timestamp() + (60.0 if is_iso and _TO_THE_MINUTE.fullmatch(text) else 0.0)
    except (ValueError, OverflowError, IndexError, TypeError):
        return None


def seconds_until(text: str, unit: Unit, server_now: float | None) -> float | None:
    """Seconds from now until a time in a unit, 0 for a time in the past; ``None`` if it is unknown.

    ``server_now`` is the present by the clock that wrote the time: without it, only times from now on are known.
    """
    value = number(text)
    if unit == "auto":
        if value is None:
            value = duration(text)
        elif value >= EPOCH_SECONDS:
            unit = "epoch" if value < EPOCH_MILLISECONDS else "epoch-ms"
        if value is None:
            value, unit = unix_time(text), "epoch"
    if value is None:
        return None
    seconds = value / 1000.0 if unit.endswith("ms") else value
    if unit.startswith("epoch"):
        return None if server_now is None else max(seconds - server_now, 0.0)
    return seconds if seconds >= 0 else None


_WAITS: dict[str, Unit] = {"retry-after-ms": "ms", "x-ms-retry-after-ms": "ms", "retry-after": "auto"}


def asked_waits(headers: Mapping[str, str], server_now: float | None) -> list[float]:
    """The waits that a refusal asks for, in seconds: those in milliseconds, which are more exact, come first.

    The names of ``headers`` are in lower case.
    """
    waits = [seconds_until(headers[name], unit, server_now) for name, unit in _WAITS.items() if name in headers]
    return [wait for wait in waits if wait is not None]


# A number or a string. All other values, such as bytes, are texts as they are written.
BareItem: TypeAlias = float | str


class Item(NamedTuple):
    """A value, and its parameters by name."""

    value: BareItem
    parameters: dict[str, BareItem]

    def number(self, name: str) -> float | None:
        """The parameter of this name, if it is a number from 0 up."""
        value = self.parameters.get(name)
        return value if isinstance(value, float) and value >= 0 else None


_BARE_ITEM = r"""(?:
    -?[0-9]{1,12}\.[0-9]{1,3} | -?[0-9]{1,15}
    | "(?: [\x20-\x21\x23-\x5b\x5d-\x7e] | \\["\\] )*+"
    | : (?: [A-Za-z0-9+/]{4} )* (?: [A-Za-z0-9+/]{2,3} ={0,2} )? :  # bytes
    | \?[01] | @-?[0-9]{1,15}  # a truth value, or a date
    | %"(?: [\x20-\x21\x23-\x24\x26-\x7e] | %[0-9a-f]{2} )*+"  # a string of other characters
    | [A-Za-z*][A-Za-z0-9!#$%&'*+.^_`|~:/-]*+  # a token
)"""
_KEY = r"; [ ]* ([a-z*][a-z0-9_.*-]*+)"
_PARAMETER = re.compile(rf"{_KEY} (?: = ({_BARE_ITEM}) )?", re.VERBOSE)
_COMMA = r"(?: \A | (?!\A) [ \t]*+,[ \t]*+ )"
_ITEM = re.compile(rf"{_COMMA} ({_BARE_ITEM}) ( (?: {_KEY} (?: = {_BARE_ITEM} )? )*+ )", re.VERBOSE)


def parse_list(text: str | None) -> list[Item]:
    """The items of a list of structured fields (RFC 9651).

    There are none if there is an error anywhere, as the drafts demand, or an inner list, which no header of limits has.
    """
    text = (text or "").strip(" ")
    items: list[Item] = []
    end = 0
    while len(items) < MAX_PARTS and (match := _ITEM.match(text, end)):
        parameters = {name: _read(value or "?1") for name, value in _PARAMETER.findall(match[2])}
        items.append(Item(_read(match[1]), parameters))
        end = match.end()
    return items if end == len(text) or len(items) == MAX_PARTS else []


def _read(text: str) -> BareItem:
    if text[0] == '"':
        return re.sub(r"\\(.)", r"\1", text[1:-1])
    return float(text) if text[0] in "-0123456789" else text
