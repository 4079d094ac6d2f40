"""Documents: small values beside the buckets of a store, which all processes on that store share."""

from __future__ import annotations

import math
from collections.abc import Callable
from threading import Lock
from typing import Protocol, cast

from ..errors import ConfigurationError
from ..quotas import SECOND_US

MAX_BYTES = 1024 * 1024
"""The largest content of a document, or of a part of one, in bytes."""


class Documents(Protocol):
    """Values of bytes by name, and parts of a name, each with a content of its own.

    ``seconds`` is how long a value lives; ``None`` is forever. A content of more than 1 MiB, and ``seconds`` that are
    not finite and above 0, raise ``ValueError``. Each method raises ``StoreError`` if the store does not answer.
    """

    async def read(self, name: str) -> bytes | None:
        """The content of a document; ``None`` if there is none."""
        ...

    async def write(self, name: str, content: bytes, *, seconds: float | None = None) -> None:
        """Replace a document, whatever it was."""
        ...

    async def replace(self, name: str, old: bytes | None, new: bytes) -> bool:
        """Replace a document if it is still ``old``, forever, and return whether it was; ``None``: there was none."""
        ...

    async def read_parts(self, name: str) -> dict[str, bytes]:
        """The contents of all parts of a name."""
        ...

    async def write_part(self, name: str, part: str, content: bytes, *, seconds: float) -> None:
        """Replace one part, whatever it was. The others stay; all of them live ``seconds`` from now on."""
        ...

    async def now_us(self) -> float:
        """The time by which they expire, in microseconds since the Unix epoch."""
        ...

    async def aclose(self) -> None:
        """Close the connection of the running event loop, if there is one; a later call opens it again."""
        ...


def documents(store: object) -> Documents:
    """The documents of a store. Raises ``ConfigurationError`` for a store that has none."""
    own = getattr(store, "documents", None)
    if own is None:
        raise ConfigurationError(f"{store!r} has no documents: use a MemoryStore or a RedisStore")
    return cast("Documents", own)


def checked_content(content: bytes) -> bytes:
    """``content`` itself. Raises ``TypeError`` if it is not bytes, and ``ValueError`` if it is too large."""
    if not isinstance(content, bytes):
        raise TypeError(f'the content of a document is bytes, not {content!r}: "text".encode()')
    if len(content) > MAX_BYTES:
        raise ValueError(f"a document has at most {MAX_BYTES} bytes, not {len(content)}")
    return content


LONGEST_LIFE = 100 * 366 * 86_400
"""The longest life of a value, in seconds."""


def checked_seconds(seconds: float | None) -> float:
    """How long a value lives; infinity is forever. Raises ``ValueError`` unless it is above 0, at most 100 years."""
    if seconds is None:
        return math.inf
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds <= LONGEST_LIFE:
        raise ValueError(f"seconds must be a number above 0, at most 100 years, or None, not {seconds!r}: seconds=3600")
    return float(seconds)


class MemoryDocuments:
    """Documents in this process. Thread-safe; ``now_us`` is the time in microseconds by which they expire."""

    def __init__(self, now_us: Callable[[], float]) -> None:
        self._now_us = now_us
        self.lock = Lock()
        self._values: dict[str, tuple[bytes | dict[str, bytes], float]] = {}
        """By name, the content or the contents of the parts, and when they expire."""

    async def read(self, name: str) -> bytes | None:
        """The content of a document; ``None`` if there is none."""
        with self.lock:
            return cast("bytes | None", self._living(name))

    async def write(self, name: str, content: bytes, *, seconds: float | None = None) -> None:
        """Replace a document, whatever it was."""
        until_us = self._now_us() + checked_seconds(seconds) * SECOND_US
        with self.lock:
            self._values[name] = checked_content(content), until_us

    async def replace(self, name: str, old: bytes | None, new: bytes) -> bool:
        """Replace a document if it is still ``old``, forever, and return whether it was; ``None``: there was none."""
        checked_content(new)
        with self.lock:
            is_old = self._living(name) == old
            if is_old:
                self._values[name] = new, math.inf
            return is_old

    async def read_parts(self, name: str) -> dict[str, bytes]:
        """The contents of all parts of a name."""
        with self.lock:
            return dict(cast("dict[str, bytes] | None", self._living(name)) or {})

    async def write_part(self, name: str, part: str, content: bytes, *, seconds: float) -> None:
        """Replace one part, whatever it was. The others stay; all of them live ``seconds`` from now on."""
        until_us = self._now_us() + checked_seconds(seconds) * SECOND_US
        with self.lock:
            parts = cast("dict[str, bytes] | None", self._living(name)) or {}
            self._values[name] = {**parts, part: checked_content(content)}, until_us

    async def now_us(self) -> float:
        """The time by which they expire, in microseconds since the Unix epoch."""
        return self._now_us()

    async def aclose(self) -> None:
        """Do nothing: there is nothing to close."""

    def _living(self, name: str) -> bytes | dict[str, bytes] | None:
        """What a name has; all that has expired is deleted, because nobody may ask for its name again."""
        now = self._now_us()
        for each in [each for each, (_, until_us) in self._values.items() if until_us <= now]:
            del self._values[each]
        return self._values.get(name, (None, 0.0))[0]
