"""Limits in the syntax of the IETF drafts: structured fields in ``RateLimit`` and ``RateLimit-Policy``.

Drafts 08 to 11 have lists of names, ``RateLimit: "default";r=50;t=30`` and ``RateLimit-Policy: "default";q=100;w=60``.
Earlier ones have lists of numbers, ``100;w=60``; the rest of them is in the data of profiles.

Malformed values are ignored, as the drafts demand. No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import replace

from .server_limits import ServerLimit
from .structured_fields import BareItem, Item, parse_list


def limits_in(limits: str | None, policies: str | None) -> list[ServerLimit]:
    """The limits of both headers, those that ``RateLimit`` names first; none if neither is well-formed."""
    reported = _named(limits, "r")
    stated = {(item.value, item.parameters.get("pk")): item for item in _named(policies, "q")}
    by_name = {item.value: item for item in reversed(stated.values())}
    found: list[ServerLimit] = []
    for item in reported:
        policy = stated.get((item.value, item.parameters.get("pk"))) or stated.get((item.value, None))
        if policy is None and "pk" not in item.parameters:  # some servers send the partition with the policy alone
            policy = by_name.get(item.value)
        found.append(_limit(item, policy))
    names = {item.value for item in reported}
    return found + [_limit(policy, None) for policy in stated.values() if policy.value not in names]


def policies_in(text: str | None) -> list[tuple[float, float]]:
    """The limits and windows of a list of numbers, ``100;w=60, 5000;w=3600``; windows in seconds.

    WHOOP writes ``window`` for ``w``.
    """
    items = parse_list(text or "") or []
    pairs = [(_amount(item.value), _amount(item.parameters.get("w", item.parameters.get("window")))) for item in items]
    return [(units, window) for units, window in pairs if units is not None and window]


def first_number(text: str | None) -> float | None:
    """The first item of a list of numbers, ``100, 100;w=60``."""
    return next((_amount(item.value) for item in parse_list(text or "") or []), None)


def with_policies(limit: ServerLimit, policies: Sequence[tuple[float, float]]) -> list[ServerLimit]:
    """A limit with the window that belongs to it, and all other policies as limits of their own."""
    window = next((window for units, window in policies if units == limit.limit), limit.window)
    others = dict.fromkeys((units, window) for units, window in policies if (units, window) != (limit.limit, window))
    named = [ServerLimit(name=f"{units:g};w={window:g}", limit=units, window=window) for units, window in others]
    return [replace(limit, window=window), *named]


def _named(text: str | None, key: str) -> list[Item]:
    """The items with a name and a number. Drafts 08 and 09 allow tokens for names; later drafts allow only strings."""
    items = parse_list(text or "") or []
    return [item for item in items if isinstance(item.value, str) and item.value and _whole(item, key) is not None]


def _limit(item: Item, policy: Item | None) -> ServerLimit:
    """The limit that an item describes, and its policy in the other header."""
    both = Item(item.value, {**(policy.parameters if policy else {}), **item.parameters})
    partition, unit = both.parameters.get("pk"), both.parameters.get("qu")
    return ServerLimit(
        name=str(item.value),
        limit=_whole(both, "q"),
        remaining=_whole(both, "r"),
        window=_whole(both, "w") or None,
        reset_after=_whole(both, "t"),
        reset_means="next unit",
        unit=unit if isinstance(unit, str) else "requests",
        bucket=b64encode(partition).decode() if isinstance(partition, bytes) else None,
    )


def _amount(value: BareItem | None) -> float | None:
    """A number from 0 up."""
    if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
        return float(value)
    return None


def _whole(item: Item, key: str) -> float | None:
    """A parameter that must be an integer from 0 up."""
    value = item.parameters.get(key)
    return float(value) if type(value) is int and value >= 0 else None
