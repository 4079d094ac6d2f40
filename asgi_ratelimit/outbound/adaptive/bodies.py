"""Bodies of answers that say something about limits: read here, and kept for the caller."""

from __future__ import annotations

import json
import zlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from ...profiles import Profile
from ...profiles.source_syntax import Source, each_source

MAX_BODY = 65_536
"""Bytes of the largest body that is read for limits, compressed or not."""

OK = 200


class BodyRule:
    """Which answers of an API to read, because their bodies may say something about limits."""

    def __init__(self, profile: Profile) -> None:
        profiles = (profile, *profile.candidates)
        self._when_refused = any(map(_refusals_in_bodies, profiles))
        limits_in_bodies = any(_is_body(source) for limit in profile.limits for source in limit.sources())
        refuses_with_200 = any(OK in refusal.statuses for refusal in profile.refusals)
        self._always = limits_in_bodies or refuses_with_200

    def wants(self, response: Any) -> bool:
        """Whether to read the body of this answer."""
        if not (self._always or (self._when_refused and response.status_code in (403, 429, 503, 529))):
            return False
        length = response.headers.get("content-length", "")
        is_json = "json" in response.headers.get("content-type", "")
        return is_json and length.isdecimal() and int(length) <= MAX_BODY


@dataclass(slots=True)
class ReadBody:
    """Read the body of an answer; the result is the value of its JSON. The caller can read the body again."""

    response: Any

    async def in_task(self) -> Any:
        stream = self.response.stream
        parts = [part async for part in stream]
        await stream.aclose()
        return self._keep(stream, b"".join(parts))

    def in_thread(self) -> Any:
        stream = self.response.stream
        parts = list(stream)
        stream.close()
        return self._keep(stream, b"".join(parts))

    def _keep(self, stream: Any, body: bytes) -> Any:
        self.response.stream = _kept_class(_bases(stream))(body)
        return _json(body, self.response.headers.get("content-encoding", ""))


class _KeptBody:
    def __init__(self, body: bytes) -> None:
        self._body = body

    def __iter__(self) -> Iterator[bytes]:
        yield self._body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._body

    def close(self) -> None:
        """Nothing is left to be closed."""

    async def aclose(self) -> None:
        """Nothing is left to be closed."""


def _bases(stream: Any) -> tuple[type, ...]:
    """The base classes of a body; clients require that a body is an instance of their own."""
    return tuple(base for base in type(stream).__mro__ if base.__name__ in ("SyncByteStream", "AsyncByteStream"))


@cache
def _kept_class(bases: tuple[type, ...]) -> type:
    return type("KeptBody", (_KeptBody, *bases), {})


def _json(body: bytes, encoding: str) -> Any:
    try:
        if encoding == "gzip":
            body = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(body, MAX_BODY)
        return json.loads(body) if encoding in ("", "identity", "gzip") else None
    except (ValueError, zlib.error, RecursionError):
        return None


def _refusals_in_bodies(profile: Profile) -> bool:
    sources: list[Source] = [*each_source(profile.waits), *each_source(profile.scopes)]
    sources += [source for source, _ in profile.covers_all]
    sources += [source for refusal in profile.refusals for source, _ in refusal.signs]
    return any(map(_is_body, sources))


def _is_body(source: Source) -> bool:
    return isinstance(source, str) and source.startswith("body:")
