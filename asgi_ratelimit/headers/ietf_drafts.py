"""Limits in the syntax of the IETF drafts: lists of structured fields (RFC 9651) in two headers.

Drafts 08 to 11 have lists of names, ``RateLimit: "default";r=50;t=30`` and ``RateLimit-Policy: "default";q=100;w=60``.
Earlier ones have lists of numbers, ``100;w=60``; the rest of them is in the data of profiles.

Malformed values are ignored, as the drafts demand. The time grows no faster than the length of a text.
No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import re
from typing import NamedTuple, TypeAlias

from .server_limits import ServerLimit

MAX_ITEMS = 64
"""The most items of a list that are read; what follows is ignored."""

BareItem: TypeAlias = float | str
"""A number or a string. All other values, such as bytes, are texts as they are written."""


class Item(NamedTuple):
    """A value, and its parameters by name."""

    value: BareItem
    parameters: dict[str, BareItem]

    def number(self, name: str) -> float | None:
        """The parameter of this name, if it is a number from 0 up."""
        return _amount(self.parameters.get(name))


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
    """The items of a list; none if there is an error anywhere, or an inner list, which no header of limits has."""
    text = (text or "").strip(" ")
    items: list[Item] = []
    end = 0
    while len(items) < MAX_ITEMS and (match := _ITEM.match(text, end)):
        parameters = {name: _read(value or "?1") for name, value in _PARAMETER.findall(match[2])}
        items.append(Item(_read(match[1]), parameters))
        end = match.end()
    return items if end == len(text) or len(items) == MAX_ITEMS else []


def _read(text: str) -> BareItem:
    if text[0] == '"':
        return re.sub(r"\\(.)", r"\1", text[1:-1])
    return float(text) if text[0] in "-0123456789" else text


def limits_in(limits: str | None, policies: str | None) -> list[ServerLimit]:
    """The limits of both headers, those that ``RateLimit`` names first; none if neither is well-formed.

    An item belongs to the policy of its name and partition, or else to the first of its name: some servers send the
    partition with the policy alone.
    """
    reported, stated = _named(limits, "r"), _named(policies, "q")
    by_name = {item.value: item for item in reversed(stated)}
    by_partition = {(item.value, item.parameters.get("pk")): item for item in stated}
    found: list[ServerLimit] = []
    for item in reported:
        policy = by_partition.get((item.value, item.parameters.get("pk"))) or by_name.get(item.value)
        found.append(_limit(item, policy))
    names = {item.value for item in reported}
    return found + [_limit(policy, None) for policy in by_partition.values() if policy.value not in names]


def policies_in(text: str | None) -> list[tuple[float, float]]:
    """The limits and windows of a list of numbers, ``100;w=60, 5000;w=3600``, those without a window apart.

    Windows are in seconds. WHOOP writes ``window`` for ``w``.
    """
    numbers = [(_amount(item.value), item.number("w") or item.number("window")) for item in parse_list(text)]
    return [(units, window) for units, window in numbers if units is not None and window]


def _named(text: str | None, key: str) -> list[Item]:
    """The items with a name and this number. Drafts 08 and 09 allow tokens for names; later drafts, strings alone."""
    named = [item for item in parse_list(text) if isinstance(item.value, str) and item.value]
    return [item for item in named if item.number(key) is not None]


def _limit(item: Item, policy: Item | None) -> ServerLimit:
    """The limit that an item describes, and its policy in the other header."""
    both = Item(item.value, {**(policy.parameters if policy else {}), **item.parameters})
    partition = both.parameters.get("pk")
    return ServerLimit(
        name=str(item.value),
        limit=both.number("q"),
        remaining=both.number("r"),
        window=both.number("w") or None,
        reset_after=both.number("t"),
        reset_means="next unit",
        unit=str(both.parameters.get("qu", "requests")),
        bucket=None if partition is None else str(partition).strip(":"),
    )


def _amount(value: BareItem | None) -> float | None:
    """A number from 0 up."""
    return value if isinstance(value, float) and value >= 0 else None
