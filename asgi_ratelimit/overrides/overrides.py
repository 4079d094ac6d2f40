"""``Overrides``: limits that are changed by their names, live, for all processes of a store."""

from __future__ import annotations

import math
from typing import Any, Self

from ..argument_errors import shows_use
from ..errors import StoreError
from ..quota_text import QuotaLike
from ..stores import Store, open_store
from ..stores.opening import store_of_limits
from .document import NAME, Change, Document, Override, checked_by, checked_name, checked_quota, unpacked
from .watching import watch_of

_ATTEMPTS = 1000
"""How often a change is tried while others also change the document."""


class Overrides:
    """Changes limits by their names while programs run: in all processes that share the store, within a second.

    A name is that of a ``Rule``, a ``RateLimit``, a ``Limiter``, a paced function or transport, or, for its own quota,
    a ``RateLimitMiddleware``. ``store`` is a store or its URL. What was used stays used. Each method raises
    ``StoreError`` if the store does not answer. Raises ``ConfigurationError`` for a store that shares nothing.
    """

    @shows_use('Overrides("redis://localhost")')
    def __init__(self, store: Store | str) -> None:
        given = store_of_limits(store, "Overrides(store)")
        self._store = open_store(given) if isinstance(given, str) else given
        self._owns_store = isinstance(given, str)
        self._watch = watch_of(self._store)
        self._documents = self._store.documents

    def __repr__(self) -> str:
        return f"Overrides({self._store!r})"

    async def set(self, name: str, quota: QuotaLike, *, seconds: float | None = None, by: str | None = None) -> None:
        """Let ``quota`` apply under a name, for this many ``seconds``, or until ``unset``.

        It is a quota as text or as an object, or several. ``"shadow"`` decides and counts, but enforces nothing;
        ``"off"`` does not limit at all. ``by`` is the author that the history shows. Raises ``QuotaError`` or
        ``ValueError`` for invalid arguments, and then changes nothing.
        """
        checked, lasting = checked_quota(quota), _checked_seconds(seconds)
        await self._watch.time.look()
        now = self._watch.now
        until = None if seconds is None else now + lasting
        await self._change(checked_name(name), Override(checked, until, checked_by(by), now), by)

    async def unset(self, name: str, *, by: str | None = None) -> bool:
        """Let the limits of the programs apply again, and return whether an override applied."""
        return await self._change(checked_name(name), None, checked_by(by))

    async def all(self) -> dict[str, Override]:
        """The overrides that apply now, by name."""
        _, document = await self._read()
        return {name: each for name, each in document.overrides.items() if each.lives(self._watch.now)}

    async def history(self) -> list[Change]:
        """The latest changes, at most 100, the newest one first."""
        return list(reversed((await self._read())[1].history))

    async def aclose(self) -> None:
        """Close the store, if it was given as a URL."""
        if self._owns_store:
            await self._store.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.aclose()

    async def _read(self) -> tuple[bytes | None, Document]:
        """The content of the document, and the parsed document. Queries the time of the store first."""
        await self._watch.time.look()
        content = await self._documents.read(NAME)
        try:
            return content, unpacked(content)
        except ValueError as error:
            raise StoreError(f"{error}: delete it, its key ends in :documents:{NAME}") from error

    async def _change(self, name: str, override: Override | None, by: str | None) -> bool:
        """Change the document, which others may also change; return whether there was an override before."""
        for _ in range(_ATTEMPTS):
            content, document = await self._read()
            now = self._watch.now
            before = document.overrides.get(name)
            had_one = before is not None and before.lives(now)
            if override is None and not had_one:
                return False
            packed = document.changed(name, override, by, now).packed()
            if await self._documents.replace(NAME, content, packed):
                self._watch.received(packed)
                return had_one
        raise StoreError(f"the overrides were changed {_ATTEMPTS} times by others meanwhile")


_LONGEST = 100 * 366 * 86_400
"""The longest life of an override, in seconds."""


def _checked_seconds(seconds: float | None) -> float:
    """How long an override lives; infinity: forever. Raises ``ValueError`` unless it is above 0, at most a century."""
    if seconds is None:
        return math.inf
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds <= _LONGEST:
        raise ValueError(f"seconds must be a number above 0, at most 100 years, or None, not {seconds!r}: seconds=3600")
    return float(seconds)
