"""The document that holds all overrides of a store, with its history.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from typing import Any, TypeAlias

from ..errors import QuotaError
from ..quota_text import QuotaLike, as_quotas, as_text
from ..quotas import FixedWindow, Quota, RollingWindow, TokenBucket

NAME = "overrides"
"""The name of the document."""

FORMAT = 1

SHADOW, OFF = "shadow", "off"
WORDS = (SHADOW, OFF)
"""The words of an override instead of a quota: decided and counted, but not enforced; not limited at all."""

LATEST_CHANGES = 100
"""The number of changes that are kept."""

_MEAN_OFF = ("none", "no", "null", "false", "disable", "disabled", "unlimited")
"""Texts by which somebody may mean that nothing is limited."""

_KINDS: Mapping[str, type[Quota]] = {kind.__name__: kind for kind in (TokenBucket, FixedWindow, RollingWindow)}


@dataclass(frozen=True, slots=True)
class Override:
    """What applies under a name instead of the program's own limit: a quota, ``"shadow"`` or ``"off"``.

    ``quota`` is the text that was set, or quotas. ``until`` is the Unix time when it ends, or ``None`` for never.
    ``at`` is the time when it was set, and ``by`` is its author.
    """

    quota: str | tuple[Quota, ...]
    until: float | None = None
    by: str | None = None
    at: float = 0.0

    @property
    def word(self) -> str | None:
        """``"shadow"`` or ``"off"``, if it is one of them."""
        return self.quota if isinstance(self.quota, str) and self.quota in WORDS else None

    @property
    def text(self) -> str:
        """The quota as text."""
        return self.quota if isinstance(self.quota, str) else as_text(self.quota)

    def lives(self, now: float) -> bool:
        """Whether it applies at a Unix time."""
        return self.until is None or now < self.until


@dataclass(frozen=True, slots=True)
class Change:
    """A change of what applies under a name: ``before`` and ``after`` are overrides, or ``None`` for none."""

    name: str
    at: float
    by: str | None
    before: Override | None
    after: Override | None


@dataclass(frozen=True, slots=True)
class Document:
    """All overrides by name, and the latest changes, the newest one last; ``version`` counts the changes."""

    version: int
    overrides: Mapping[str, Override]
    history: tuple[Change, ...]

    def changed(self, name: str, override: Override | None, by: str | None, now: float) -> Document:
        """The document with another override, or none, under a name; those that have ended are left out."""
        overrides = {each: old for each, old in self.overrides.items() if old.lives(now)}
        before = overrides.pop(name, None)
        if override is not None:
            overrides[name] = override
        history = (*self.history, Change(name, now, by, before, override))[-LATEST_CHANGES:]
        return Document(self.version + 1, overrides, history)

    def shortened(self) -> Document:
        """The document without the older half of its history."""
        return replace(self, history=self.history[len(self.history) // 2 + 1 :])

    def packed(self) -> bytes:
        """The document as bytes."""
        content = {
            "format": FORMAT,
            "version": self.version,
            "overrides": {name: _as_json(override) for name, override in self.overrides.items()},
            "history": [
                {"name": c.name, "at": c.at, "by": c.by, "before": _as_json(c.before), "after": _as_json(c.after)}
                for c in self.history
            ],
        }
        return json.dumps(content, separators=(",", ":")).encode()


EMPTY = Document(0, {}, ())


def unpacked(content: bytes | None) -> Document:
    """The document in these bytes; an empty one for ``None``. Raises ``ValueError`` for anything else."""
    if content is None:
        return EMPTY
    try:
        read = json.loads(content)
        if read["format"] != FORMAT:
            raise ValueError(f"it has the format {read['format']!r} instead of {FORMAT}: a newer version wrote it")
        overrides = {_text(name): _of_json(each) for name, each in read["overrides"].items()}
        for override in overrides.values():
            checked_quota(override.quota)
        history = tuple([_change(each) for each in read["history"]])
        return Document(int(read["version"]), overrides, history)
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"the document {NAME!r} does not hold overrides: {error!r}") from error


_Json: TypeAlias = dict[str, Any]


def _as_json(override: Override | None) -> _Json | None:
    if override is None:
        return None
    quota = override.quota if isinstance(override.quota, str) else [_of_quota(each) for each in override.quota]
    return {"quota": quota, "until": override.until, "by": override.by, "at": override.at}


def _of_quota(quota: Quota) -> _Json:
    return {
        "kind": type(quota).__name__,
        **{each.name: getattr(quota, each.name) for each in fields(quota) if each.init},
    }


def _of_json(read: _Json) -> Override:
    given, until = read["quota"], read["until"]
    quota = given if isinstance(given, str) else tuple([_quota(each) for each in given])
    return Override(
        quota,
        until=None if until is None else _time(until),
        by=None if read["by"] is None else _text(read["by"]),
        at=_time(read["at"]),
    )


def _quota(read: _Json) -> Quota:
    return _KINDS[read["kind"]](**{name: value for name, value in read.items() if name != "kind"})


def _change(read: _Json) -> Change:
    by = None if read["by"] is None else _text(read["by"])
    before, after = [None if each is None else _of_json(each) for each in (read["before"], read["after"])]
    return Change(_text(read["name"]), _time(read["at"]), by, before, after)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a string")
    return value


def _time(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise TypeError(f"{value!r} is not a time")
    return value


def checked_quota(quota: QuotaLike) -> str | tuple[Quota, ...]:
    """The quota of an override: a text or a word as it is, anything else as quotas. Raises ``QuotaError``."""
    if isinstance(quota, str):
        if quota not in WORDS:
            _require_no_word(quota)
            as_quotas(quota)
        return quota
    return as_quotas(quota)


def _require_no_word(text: str) -> None:
    """Raise ``QuotaError`` for a text that means one of the words, and is none of them."""
    word = text.strip().lower()
    near = [OFF] if word in _MEAN_OFF else get_close_matches(word, WORDS, 1)
    if near:
        raise QuotaError(
            f'{text!r} is neither a quota nor one of {SHADOW} and {OFF}, did you mean {near[0]!r}?: "10/minute"'
        )
