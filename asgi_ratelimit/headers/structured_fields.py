"""Lists and dictionaries of structured fields (RFC 9651), parsed strictly: a value with any error is no value.

Inner lists are errors as well, because no header of rate limits has one. Every function takes time that grows no faster
than the length of the text. No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from typing import NamedTuple, TypeAlias


class Token(str):
    """A text without quotes."""

    __slots__ = ()


BareItem: TypeAlias = int | float | str | Token | bytes | bool


class Item(NamedTuple):
    """A value, and its parameters by name."""

    value: BareItem
    parameters: dict[str, BareItem]


_SPACES = re.compile(r" *")
_OPTIONAL_SPACES = re.compile(r"[ \t]*")
_KEY = re.compile(r"[a-z*][a-z0-9_.*-]*")
_BARE_ITEM = re.compile(
    r"""
    (?P<decimal> -?[0-9]{1,12}\.[0-9]{1,3} )
    | @?(?P<integer> -?[0-9]{1,15} )
    | "(?P<string> (?: [\x20-\x21\x23-\x5b\x5d-\x7e] | \\["\\] )* )"
    | :(?P<bytes> [A-Za-z0-9+/]* ={0,2} ):
    | \?(?P<boolean> [01] )
    | %"(?P<display> (?: [\x20-\x21\x23-\x24\x26-\x7e] | %[0-9a-f]{2} )* )"
    | (?P<token> [A-Za-z*][A-Za-z0-9!#$%&'*+.^_`|~:/-]* )
    """,
    re.VERBOSE,
)


class _MalformedError(ValueError):
    """Raised within this module."""


def parse_list(text: str) -> list[Item] | None:
    """The members of a list; ``None`` for anything else."""
    try:
        return [item for _, item in _members(text, named=False)]
    except _MalformedError:
        return None


def parse_dictionary(text: str) -> dict[str, Item] | None:
    """The members of a dictionary by name; ``None`` for anything else. Of two with one name, the last one counts."""
    try:
        return dict(_members(text, named=True))
    except _MalformedError:
        return None


def _members(text: str, *, named: bool) -> list[tuple[str, Item]]:
    text = text.strip(" ")
    members: list[tuple[str, Item]] = []
    at = 0
    while at < len(text) or members:
        name, value, at = _named_value(text, at) if named else ("", *_bare_item(text, at))
        parameters, at = _parameters(text, at)
        members.append((name, Item(value, parameters)))
        at = _after(_OPTIONAL_SPACES, text, at)
        if at == len(text):
            break
        if text[at] != ",":
            raise _MalformedError
        at = _after(_OPTIONAL_SPACES, text, at + 1)
    return members


def _parameters(text: str, at: int) -> tuple[dict[str, BareItem], int]:
    parameters: dict[str, BareItem] = {}
    while text.startswith(";", at):
        name, value, at = _named_value(text, _after(_SPACES, text, at + 1))
        parameters[name] = value
    return parameters, at


def _named_value(text: str, at: int) -> tuple[str, BareItem, int]:
    """A key and its value, which is true if none is written."""
    key, at = _key(text, at)
    return (key, *_bare_item(text, at + 1)) if text.startswith("=", at) else (key, True, at)


def _key(text: str, at: int) -> tuple[str, int]:
    match = _KEY.match(text, at)
    if match is None:
        raise _MalformedError
    return match[0], match.end()


def _after(pattern: re.Pattern[str], text: str, at: int) -> int:
    """The position after the match there, which may be empty."""
    match = pattern.match(text, at)
    return match.end() if match else at


def _bare_item(text: str, at: int) -> tuple[BareItem, int]:
    match = _BARE_ITEM.match(text, at)
    if match is None or match.lastgroup is None:
        raise _MalformedError
    return _value(match.lastgroup, match[match.lastgroup]), match.end()


def _value(kind: str, text: str) -> BareItem:
    if kind in ("decimal", "integer"):
        return float(text) if kind == "decimal" else int(text)
    if kind == "string":
        return re.sub(r"\\(.)", r"\1", text)
    if kind == "boolean":
        return text == "1"
    if kind == "bytes":
        return _bytes(text)
    return Token(text) if kind == "token" else text


def _bytes(text: str) -> bytes:
    """Bytes in base64, whose padding may be missing."""
    bare = text.rstrip("=")
    try:
        return b64decode(bare + "=" * (-len(bare) % 4))
    except binascii.Error:
        raise _MalformedError from None
