"""The document that holds all overrides of a store, with its history.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from ..errors import ConfigurationError, QuotaError
from ..quota_text import QuotaLike, as_quotas, as_text
from ..quotas import FixedWindow, Quota, RollingWindow, TokenBucket
from ..stores.documents import MAX_BYTES

NAME = "overrides"
"""The name of the document."""

FORMAT = 1

SHADOW, OFF = "shadow", "off"
WORDS = (SHADOW, OFF)
"""The words of an override instead of a quota: decided and counted, but not enforced; not limited at all."""

LATEST_CHANGES, FEW_CHANGES = 100, 10
"""The number of changes that are kept, and that of a document which would be too large with them."""

LONGEST_QUOTA = 1024
"""Characters of the longest text of a quota: every process reads it once a second."""

LONGEST_TEXT = 256
"""Characters of the longest name, both of a limit and of its author."""

_NOT_SHOWN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that could forge a line of a log, or reach a terminal; and half characters."""

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

    def packed(self) -> bytes:
        """The document as bytes, with less of its history if it is too large. Raises ``ConfigurationError``."""
        for most in (LATEST_CHANGES, FEW_CHANGES, 0):
            history = self.history[len(self.history) - min(most, len(self.history)) :]
            content = {"format": FORMAT, "version": self.version, "overrides": self.overrides, "history": history}
            packed = json.dumps(content, separators=(",", ":"), default=_named).encode()
            if len(packed) <= MAX_BYTES:
                return packed
        raise ConfigurationError(f"{len(self.overrides)} overrides are too many for a document: unset some")


def _named(value: Any) -> dict[str, Any]:
    """An override, a change, or a quota with its kind, as JSON has it."""
    named = {each.name: getattr(value, each.name) for each in fields(value) if each.init}
    return {"kind": type(value).__name__, **named} if type(value) in _KINDS.values() else named


EMPTY = Document(0, {}, ())


def unpacked(content: bytes | None) -> Document:
    """The document in these bytes; an empty one for ``None``. Raises ``ValueError`` for anything else."""
    if content is None:
        return EMPTY
    try:
        read = json.loads(content)
        if read["format"] != FORMAT:
            raise ValueError(f"it has the format {read['format']!r} instead of {FORMAT}: a newer version wrote it")
        overrides = {checked_name(name): _override(**each) for name, each in read["overrides"].items()}
        for override in overrides.values():
            checked_quota(override.quota)
        history = tuple([_change(**each) for each in read["history"]])
        return Document(int(read["version"]), overrides, history)
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"the document {NAME!r} does not hold overrides: {error!r}") from error


def _override(quota: Any, until: Any, by: Any, at: Any) -> Override:
    quotas = quota if isinstance(quota, str) else tuple([_KINDS[each.pop("kind")](**each) for each in quota])
    return Override(quotas, None if until is None else _time(until), checked_by(by), _time(at))


def _change(name: Any, at: Any, by: Any, before: Any, after: Any) -> Change:
    both = [None if each is None else _override(**each) for each in (before, after)]
    return Change(checked_name(name), _time(at), checked_by(by), *both)


def _time(value: Any) -> float:
    if not math.isfinite(value):
        raise ValueError(f"{value!r} is not a time")
    return float(value)


def checked_quota(quota: QuotaLike) -> str | tuple[Quota, ...]:
    """The quota of an override: a text or a word as it is, anything else as quotas. Raises ``QuotaError``."""
    if not isinstance(quota, str):
        return as_quotas(quota)
    if len(quota) > LONGEST_QUOTA:
        raise QuotaError(
            f"the quota of an override has at most {LONGEST_QUOTA} characters, not {len(quota)}, {quota!r:.100}: "
            '"10/minute; 100/hour"'
        )
    if quota not in WORDS:
        try:
            as_quotas(quota)
        except QuotaError as error:
            raise QuotaError(f'{error}; or "{SHADOW}", or "{OFF}"') from None
    return quota


def checked_name(name: str) -> str:
    """``name``, if it is a text that can be shown; ``ConfigurationError`` otherwise."""
    return _checked_text("name", name, '"login"')


def checked_by(by: str | None) -> str | None:
    """``by``, if it is a text that the history can show, or ``None``; ``ConfigurationError`` otherwise."""
    return None if by is None else _checked_text("by", by, '"alice"')


def _checked_text(what: str, text: str, example: str) -> str:
    if not isinstance(text, str) or not 0 < len(text) <= LONGEST_TEXT:
        raise ConfigurationError(
            f"{what} must be a text of 1 to {LONGEST_TEXT} characters, not {text!r:.100}: {what}={example}"
        )
    if _NOT_SHOWN.search(text):
        raise ConfigurationError(f"{what} has a character that cannot be shown, {text!r}: {what}={example}")
    return text
