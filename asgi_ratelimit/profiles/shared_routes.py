"""Which requests share a bucket, as far as their methods and paths show.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_PATH = 2048
"""A longer path is cut to this length before it is read."""

LONGEST_SEGMENT = 64
"""A longer segment of a path is a token or a text, and not part of a bucket's name, unless it belongs to a major
parameter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Routes:
    """Which parts of a path belong to the name of a bucket.

    * ``majors``: segments after which one segment, or as many as stated, is part of the bucket's name:
      ``{"channels": 1, "webhooks": 2}``, as pairs. Only the first one of a path counts.
    * ``id_digits``: a number of at least this many digits is an id, and all ids share a bucket; ``None`` for no ids.
    * ``wildcards``: segments after which one segment may be anything, for example ``reactions``.
    """

    majors: tuple[tuple[str, int], ...] = ()
    id_digits: int | None = None
    wildcards: tuple[str, ...] = ()

    def route(self, method: str, path: str) -> str:
        """What requests of one bucket have in common, for example ``"GET /channels/1/messages/{id}"``."""
        segments = _segments(path)
        first, end = self._major(segments)
        pairs = enumerate(zip(["", *segments], segments))
        named = [each if first < n < end else self._named(before, each) for n, (before, each) in pairs]
        return f"{method.upper()} /{'/'.join(named)}"

    def major_parameters(self, path: str) -> str:
        """The segments that are part of a bucket's name, for example ``"channels/1"``; ``""`` for none.

        The name that Discord's answers give a bucket and these parameters identify it: with other parameters, it is
        another bucket.
        """
        segments = _segments(path)
        first, end = self._major(segments)
        return "/".join(segments[first:end])

    def _major(self, segments: list[str]) -> tuple[int, int]:
        """The two positions between which a major segment and its parameters are."""
        for first, segment in enumerate(segments):
            for major, parameters in self.majors:
                if segment == major:
                    return first, first + 1 + parameters
        return len(segments), len(segments)

    def _named(self, before: str, segment: str) -> str:
        if before in self.wildcards or len(segment) > LONGEST_SEGMENT:
            return "{any}"
        is_id = self.id_digits is not None and len(segment) >= self.id_digits and segment.isdecimal()
        return "{id}" if is_id else segment


def _segments(path: str) -> list[str]:
    return path[:MAX_PATH].partition("?")[0].strip("/").split("/")


NO_ROUTES = Routes()
"""Every method and path has a bucket of its own."""
