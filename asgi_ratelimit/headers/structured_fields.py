"""Lists of structured fields (RFC 9651), parsed strictly: a value with any error is no value.

Inner lists are errors as well, because no header of rate limits has one. The time grows no faster than the length of
the text. No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

MAX_ITEMS = 64
"""The most items of a list that are read; what follows is ignored."""

BareItem: TypeAlias = int | float | str | bytes | bool


class Item(NamedTuple):
    """A value, and its parameters by name."""

    value: BareItem
    parameters: dict[str, BareItem]


_BARE_ITEM = r"""(?:
    (?P<decimal> -?[0-9]{1,12}\.[0-9]{1,3} )
    | @?(?P<integer> -?[0-9]{1,15} )
    | "(?P<string> (?: [\x20-\x21\x23-\x5b\x5d-\x7e] | \\["\\] )* )"
    | :(?P<bytes> (?: [A-Za-z0-9+/]{4} )* (?: [A-Za-z0-9+/]{2,3} ={0,2} )? ):
    | \?(?P<boolean> [01] )
    | %"(?P<display> (?: [\x20-\x21\x23-\x24\x26-\x7e] | %[0-9a-f]{2} )* )"
    | (?P<token> [A-Za-z*][A-Za-z0-9!#$%&'*+.^_`|~:/-]* )
)"""
_VALUE = re.compile(_BARE_ITEM, re.VERBOSE)
_PARAMETER = re.compile(rf"; [ ]* (?P<key> [a-z*][a-z0-9_.*-]* ) (?: = {_BARE_ITEM} )?", re.VERBOSE)
_END = re.compile(r"[ \t]*(?:(?P<comma>,)[ \t]*|\Z)")

_READERS: dict[str, Callable[[str], BareItem]] = {
    "key": lambda _: True,  # a parameter without a value
    "decimal": float,
    "integer": int,
    "string": lambda text: re.sub(r"\\(.)", r"\1", text),
    "bytes": lambda text: b64decode(text + "=="),  # padding may be missing
    "boolean": lambda text: text == "1",
}


def parse_list(text: str) -> list[Item] | None:
    """The items of a list; ``None`` for anything else."""
    text = text.strip(" ")
    items: list[Item] = []
    at, is_more = 0, bool(text)
    while is_more and len(items) < MAX_ITEMS:
        value = _VALUE.match(text, at)
        if value is None:
            return None
        parameters: dict[str, BareItem] = {}
        at = value.end()
        while parameter := _PARAMETER.match(text, at):
            parameters[parameter["key"]] = _read(parameter)
            at = parameter.end()
        end = _END.match(text, at)
        if end is None:
            return None
        items.append(Item(_read(value), parameters))
        at, is_more = end.end(), end["comma"] is not None
    return items


def _read(match: re.Match[str]) -> BareItem:
    kind = match.lastgroup or "token"
    return _READERS.get(kind, str)(match[kind])
