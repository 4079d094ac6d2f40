"""Bodies of answers that say something about limits: read here, and kept for the caller."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from ...profiles import Profile
from ...profiles.costs import decoded
from ...profiles.definitions import Source, each_source

MAX_BODY = 65_536
"""Bytes of a body that are read for limits, compressed or not; a longer one says nothing about them."""

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
        length = response.headers.get("content-length", "0")
        is_json = "json" in response.headers.get("content-type", "")
        return is_json and length.isdecimal() and int(length) <= MAX_BODY


@dataclass(slots=True)
class ReadBody:
    """Read the body of an answer; the result is the value of its JSON. The caller can read the body again."""

    response: Any

    async def in_task(self) -> Any:
        body, stream = bytearray(), self.response.stream
        rest = aiter(stream)
        async for part in rest:
            body += part
            if len(body) > MAX_BODY:
                return self._keep(body, rest)
        await stream.aclose()
        return self._keep(body, None)

    def in_thread(self) -> Any:
        body, stream = bytearray(), self.response.stream
        rest = iter(stream)
        for part in rest:
            body += part
            if len(body) > MAX_BODY:
                return self._keep(body, rest)
        stream.close()
        return self._keep(body, None)

    def _keep(self, body: bytearray, rest: Any) -> Any:
        stream = self.response.stream
        bases = tuple(each for each in type(stream).__mro__ if each.__name__ in ("SyncByteStream", "AsyncByteStream"))
        self.response.stream = _kept_class(bases)(bytes(body), rest, stream)
        return None if rest is not None else _json(bytes(body), self.response.headers.get("content-encoding", ""))


class _KeptBody:
    """A body whose beginning was read; ``rest`` has what comes after that, if there is more in ``stream``."""

    def __init__(self, body: bytes, rest: Any, stream: Any) -> None:
        self._body, self._rest, self._stream = body, rest, stream

    def __iter__(self) -> Iterator[bytes]:
        yield self._body
        yield from self._rest or ()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._body
        if self._rest is not None:
            async for part in self._rest:
                yield part

    def close(self) -> None:
        """Close what is left."""
        if self._rest is not None:
            self._stream.close()

    async def aclose(self) -> None:
        """Close what is left."""
        if self._rest is not None:
            await self._stream.aclose()


@cache
def _kept_class(bases: tuple[type, ...]) -> type:
    """A class of bodies; clients require that a body is an instance of a class of their own."""
    return type("KeptBody", (_KeptBody, *bases), {})


def _json(body: bytes, encoding: str) -> Any:
    try:
        return json.loads(decoded(body, encoding, MAX_BODY))
    except (ValueError, RecursionError):
        return None


def _refusals_in_bodies(profile: Profile) -> bool:
    sources: list[Source] = [*each_source(profile.waits), *each_source(profile.scopes)]
    sources += [source for source, _ in profile.covers_all]
    sources += [source for refusal in profile.refusals for source, _ in refusal.signs]
    return any(map(_is_body, sources))


def _is_body(source: Source) -> bool:
    return isinstance(source, str) and source.startswith("body:")
