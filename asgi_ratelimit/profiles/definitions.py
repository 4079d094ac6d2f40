"""The parts of a profile: data that says how to read the answers of one API.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias, get_args

from ..errors import ConfigurationError, shows_use

# A longer path is cut to this length before it is read.
MAX_PATH = 2048

# A longer segment of a path is a token or a text, and not part of a bucket's name, unless it belongs to a major
# parameter.
LONGEST_SEGMENT = 64

# Where a value is: ``"x-limit"`` is a header, ``"x-limit#used"`` a parameter in a header, ``"body:cost.left"`` a field
# of the body (``*`` for any item of a list); a number is the value itself. ``{name}`` stands for the name of a limit.
# Headers are in any case.
Source: TypeAlias = str | float

# One source, or several, of which the first that has a value counts; ``()`` for none.
Sources: TypeAlias = Source | tuple[Source, ...]

# A source and its text, in any case; ``*`` at an end of the text stands for any other text. ``("retry-after", "*")``
# is a header that is present, and ``("via", "")`` one that is missing.
Sign: TypeAlias = tuple[str, str]

# The unit of a time: seconds or milliseconds from now, or since 1970. ``"auto"`` distinguishes them by size, and reads
# durations (``6m0s``) and dates as well; milliseconds from now are never recognised by size.
Unit: TypeAlias = Literal["auto", "s", "ms", "epoch", "epoch-ms"]

# What happens at a reset: a new window begins, more units become available, or the limit is as good as unused.
ResetMeaning: TypeAlias = Literal["window end", "next unit", "full refill"]


def each_source(sources: Sources) -> tuple[Source, ...]:
    """The sources one by one."""
    return sources if isinstance(sources, tuple) else (sources,)


_CHOICES = {"reset_unit": get_args(Unit), "reset_means": get_args(ResetMeaning), "window_unit": ("s", "ms")}


class _Checked:
    """Data whose fields are checked when it is built."""

    __slots__ = ()

    def __post_init__(self) -> None:
        """Refuse a tuple without its comma, also around a pair, a source of another type, and an unknown choice."""
        for each in fields(self):  # type: ignore[arg-type]  # a dataclass
            name, value, choices = each.name, getattr(self, each.name), _CHOICES.get(each.name, ())
            if choices and value not in choices:
                raise ConfigurationError(f'{name} must be one of {choices}, not {value!r}: {name}="{choices[0]}"')
            if str(each.type).startswith("tuple") and not isinstance(value, tuple):
                raise ConfigurationError(f"{name} must be a tuple, not {value!r}: {name}=({value!r},)")
            has_pairs = each.type in ("tuple[Sign, ...]", "tuple[tuple[str, int], ...]")
            pairs = value if has_pairs else [value] if each.type == "Sign | None" else ()
            if not all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs if pair is not None):
                right = (value,) if has_pairs else (value, "*")
                raise ConfigurationError(f"{name} must be of pairs, not {value!r}: {name}={right!r}")
            if each.type == "Sources" and not all(isinstance(one, str | float | int) for one in each_source(value)):
                raise ConfigurationError(f'{name} must be a source or several, not {value!r}: {name}="x-{name}"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Routes(_Checked):
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


# Every method and path has a bucket of its own.
NO_ROUTES = Routes()


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitHeaders(_Checked):
    """Where an answer states one limit, or, with ``{name}`` in ``name`` and sources, several similar ones.

    * ``limit``, ``remaining`` and ``used`` are units; ``utilization`` is the part of the limit that is used, 0 to 1;
      ``cost`` is the cost of this request, and ``needed`` what must have been left for it, if that may be more.
    * ``reset`` is a time in ``reset_unit``; ``reset_means`` says what it means.
    * ``window`` is in seconds, or in ``window_unit``; ``policies`` are lists such as ``100;w=60, 5000;w=3600``.
    * ``refill`` units come back every ``refill_every`` seconds.
    * ``bucket`` identifies what is limited; ``scope`` says whose limit it is; ``unit`` says what is counted.
    * ``exhausted`` is the sign that nothing is left, whatever the numbers say.

    Raises ``ConfigurationError`` for a value of a wrong kind.
    """

    name: str = "default"
    limit: Sources = ()
    remaining: Sources = ()
    used: Sources = ()
    utilization: Sources = ()
    cost: Sources = ()
    needed: Sources = ()
    reset: Sources = ()
    reset_unit: Unit = "auto"
    reset_means: ResetMeaning = "window end"
    window: Sources = ()
    window_unit: Literal["s", "ms"] = "s"
    policies: Sources = ()
    refill: Sources = ()
    refill_every: Sources = 1.0
    bucket: Sources = ()
    unit: str = "requests"
    scope: str | None = None
    exhausted: Sign | None = None

    def sources(self) -> list[Source]:
        """All sources of the limit, field by field."""
        return [source for name in _SOURCED for source in each_source(getattr(self, name))]


_SOURCED = tuple(field.name for field in fields(LimitHeaders) if field.type == "Sources")


def alike(pattern: str, words: str = "limit remaining reset", **others: Any) -> LimitHeaders:
    """A limit whose headers differ in one word, which is the name of the field as well: ``*`` stands for it."""
    return LimitHeaders(**{**{word: pattern.replace("*", word) for word in words.split()}, **others})


@dataclass(frozen=True, slots=True)
class Refusal(_Checked):
    """How an API refuses: with one of ``statuses`` and all of ``signs``.

    ``scope`` says what kind of refusal it is. ``wait`` is in seconds, for an answer that names no time. One that
    ``is_final`` ends with no wait, so it is not one because of a limit: the caller gets the answer at once.
    """

    statuses: tuple[int, ...]
    signs: tuple[Sign, ...] = ()
    scope: str | None = None
    wait: float | None = None
    is_final: bool = False


STANDARD_REFUSALS = (
    Refusal((429,)),
    Refusal((503,), (("retry-after", "*"),)),
    Refusal((503,), (("retry-after-ms", "*"),)),
    Refusal((503,), (("x-ms-retry-after-ms", "*"),)),
)
"""A 429 refuses (RFC 6585), and so does a 503 that says when to come back (RFC 9110)."""


@dataclass(frozen=True, slots=True)
class Ban(_Checked):
    """When an API bans a client: at ``count`` answers with one of ``statuses`` within ``seconds``.

    Refusals of the scopes ``uncounted`` do not count.
    """

    statuses: tuple[int, ...]
    count: int
    seconds: float
    uncounted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HiddenRate:
    """The rate above which an API refuses: from ``floor`` to ``ceiling`` requests a second.

    The search begins at ``start``, by default at the floor. Wrong bounds raise ``ConfigurationError``.
    """

    floor: float
    ceiling: float
    start: float | None = None

    def __post_init__(self) -> None:
        """Refuse bounds between which there is no rate."""
        bounds = [self.floor, self.ceiling] if self.start is None else [self.floor, self.start, self.ceiling]
        are_numbers = all(isinstance(each, int | float) and not isinstance(each, bool) for each in bounds)
        if not are_numbers or bounds != sorted(bounds) or not 1 / 86_400 <= bounds[0] <= bounds[-1] < math.inf:
            rising = "numbers of at least 1.16e-05, from the floor up to the ceiling"
            raise ConfigurationError(f"the bounds of a search are {rising}, not {bounds!r}: aimd(0.5, 100)")


@shows_use('Profile(name="example", limits=(limit,))')
@dataclass(frozen=True, slots=True, kw_only=True)
class Profile(_Checked):
    """How to read the answers of an API; ``source`` is the page that documents them.

    * ``limits``: where answers state limits. Of two limits with one name, the first one present counts.
    * ``drafts``: headers in the syntax of the IETF drafts, each with its ``-policy``; they come before ``limits``.
    * ``refusals``: the first that matches an answer makes it a refusal.
    * ``waits``: sources of the time to wait, seconds or in another form, before ``Retry-After`` and its kin.
    * ``scopes``: sources that say whom or what a refusal is about. ``covers_all``: each of these signs says that it
      concerns all requests, not only those of this bucket.
    * ``routes``: which requests share a bucket, as far as their paths show. ``ban``: what leads to a ban.
    * ``quota``: a limit of all requests that answers report only by refusals. An ``AdaptiveTransport`` keeps to it,
      unless it has a quota of its own. ``quota_exempt``: segments of paths whose requests neither of them counts.
    * ``hidden_rate``: a limit that answers do not report, and that a transport searches for.
    * ``signs``: headers, in lower case, that no other API sends. A profile with ``candidates`` reads an answer by the
      first candidate whose sign the answer has, and otherwise by itself.
    """

    name: str
    source: str = ""
    limits: tuple[LimitHeaders, ...] = ()
    drafts: tuple[str, ...] = ("ratelimit",)
    refusals: tuple[Refusal, ...] = STANDARD_REFUSALS
    waits: Sources = ()
    scopes: Sources = ()
    covers_all: tuple[Sign, ...] = ()
    routes: Routes = NO_ROUTES
    ban: Ban | None = None
    quota: str | None = None
    quota_exempt: tuple[str, ...] = ()
    hidden_rate: HiddenRate | None = None
    signs: tuple[str, ...] = ()
    candidates: tuple[Profile, ...] = ()
