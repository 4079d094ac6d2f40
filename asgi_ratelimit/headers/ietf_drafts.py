"""Limits in the syntax of the IETF drafts: structured fields in ``RateLimit`` and ``RateLimit-Policy``.

* Drafts 08 to 11: lists of names, ``RateLimit: "default";r=50;t=30`` and ``RateLimit-Policy: "default";q=100;w=60``.
* Draft 07: a dictionary, ``RateLimit: limit=100, remaining=50, reset=5``, and a list of numbers, ``100;w=60``.
* Drafts 00 to 06: the list of numbers alone; the rest is in headers of its own.

Malformed values are ignored, as the drafts demand. No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import replace

from .server_limits import ServerLimit
from .structured_fields import BareItem, Item, Token, parse_dictionary, parse_list


def limits_in(limits: str | None, policies: str | None) -> list[ServerLimit]:
    """The limits of both headers, those that ``RateLimit`` names first; none if neither is well-formed."""
    if limits is None and policies is None:
        return []
    of_draft_7 = _of_dictionary(parse_dictionary(limits or "") or {}, policies)
    if of_draft_7:
        return of_draft_7
    reported = [item for item in _items(limits) if _is_name(item) and _whole(item, "r") is not None]
    stated = {_identity(item): item for item in _items(policies) if _is_name(item) and _whole(item, "q") is not None}
    limits_reported = [_limit(item, stated.get(_identity(item)) or stated.get((item.value, None))) for item in reported]
    names = {item.value for item in reported}
    return limits_reported + [_limit(None, policy) for (name, _), policy in stated.items() if name not in names]


def policies_in(text: str | None) -> list[tuple[float, float]]:
    """The limits and windows of a list of numbers, ``100;w=60, 5000;w=3600``; windows in seconds."""
    if text is None:
        return []
    pairs = [(_amount(item.value), _window(item)) for item in _items(text)]
    return [(units, window) for units, window in pairs if units is not None and window]


def first_number(text: str | None) -> float | None:
    """The first member of a list of numbers, ``100, 100;w=60``."""
    return next((_amount(item.value) for item in _items(text)), None)


def _items(text: str | None) -> list[Item]:
    return [] if text is None else parse_list(text) or []


def _is_name(item: Item) -> bool:
    """Whether an item is a name. Drafts 08 and 09 allow tokens for names; later drafts allow only strings."""
    return isinstance(item.value, str) and bool(item.value)


def _amount(value: BareItem | None) -> float | None:
    """A number from 0 up."""
    if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
        return float(value)
    return None


def _whole(item: Item | None, key: str) -> int | None:
    """A parameter that must be an integer from 0 up."""
    value = item.parameters.get(key) if item else None
    return value if type(value) is int and value >= 0 else None


def _window(item: Item) -> float | None:
    """The seconds of a window, under the name that the drafts or WHOOP give it."""
    return _amount(item.parameters.get("w", item.parameters.get("window")))


def _identity(item: Item) -> tuple[BareItem, BareItem | None]:
    """A name and a partition key, which match an item of one header with that of the other."""
    return item.value, item.parameters.get("pk")


def _limit(reported: Item | None, stated: Item | None) -> ServerLimit:
    """The limit that one item of ``RateLimit`` and one of ``RateLimit-Policy`` describe."""
    item = reported or stated
    partition = item.parameters.get("pk") if item else None
    unit = stated.parameters.get("qu") if stated else None
    return ServerLimit(
        name=str(item.value) if item else "",
        limit=_float(_whole(stated, "q")),
        remaining=_float(_whole(reported, "r")),
        window=_float(_whole(stated, "w") or None),
        reset_after=_float(_whole(reported, "t")),
        reset_means="next unit",
        unit=unit if isinstance(unit, str) and not isinstance(unit, Token) else "requests",
        bucket=b64encode(partition).decode() if isinstance(partition, bytes) else None,
    )


def _of_dictionary(dictionary: Mapping[str, Item], policies: str | None) -> list[ServerLimit]:
    item = Item("", {name: item.value for name, item in dictionary.items()})
    limit, remaining, reset = (_float(_whole(item, key)) for key in ("limit", "remaining", "reset"))
    if limit is None and remaining is None:
        return []
    return with_policies(ServerLimit(limit=limit, remaining=remaining, reset_after=reset), policies_in(policies))


def with_policies(limit: ServerLimit, policies: Sequence[tuple[float, float]]) -> list[ServerLimit]:
    """A limit with the window that belongs to it, and all other policies as limits of their own."""
    if not policies:
        return [limit]
    window = next((window for units, window in policies if units == limit.limit), limit.window)
    others = dict.fromkeys((units, window) for units, window in policies if (units, window) != (limit.limit, window))
    named = [ServerLimit(name=f"{units:g};w={window:g}", limit=units, window=window) for units, window in others]
    return [replace(limit, window=window), *named]


def _float(value: int | None) -> float | None:
    return None if value is None else float(value)
