"""The parts of a profile: data that says how to read the answers of one API.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Literal, get_args

from ..argument_errors import shows_use
from ..errors import ConfigurationError
from .hidden_limits import HiddenConcurrency, HiddenRate
from .shared_routes import NO_ROUTES, Routes
from .source_syntax import ResetMeaning, Sign, Source, Sources, Unit, each_source, require_one_of, require_sources


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitHeaders:
    """Where an answer states one limit, or, with ``{name}`` in ``name`` and sources, several similar ones.

    * ``limit``, ``remaining`` and ``used`` are units; ``utilization`` is the part of the limit that is used, 0 to 1;
      ``cost`` is the cost of this request.
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
    templates: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Refuse values that are not written as a source, a unit or a meaning."""
        require_one_of("reset_unit", self.reset_unit, get_args(Unit))
        require_one_of("reset_means", self.reset_means, get_args(ResetMeaning))
        require_one_of("window_unit", self.window_unit, ("s", "ms"))
        require_sources(self.sources())
        if not any((self.limit, self.remaining, self.used, self.utilization, self.policies)):
            raise ConfigurationError(f'{self.name!r} says nothing of a limit: LimitHeaders(remaining="x-remaining")')

        templates = [source for source in self.sources() if isinstance(source, str) and "{name}" in source]
        object.__setattr__(self, "templates", tuple(templates))

    def sources(self) -> list[Source]:
        """All sources of the limit, field by field."""
        return [source for name in _SOURCED for source in each_source(getattr(self, name))]


_SOURCED = tuple(field.name for field in fields(LimitHeaders) if field.type == "Sources")


@dataclass(frozen=True, slots=True)
class Refusal:
    """How an API refuses: with one of ``statuses`` and all of ``signs``.

    ``scope`` says what kind of refusal it is. ``wait`` is in seconds, for an answer that names no time.
    """

    statuses: tuple[int, ...]
    signs: tuple[Sign, ...] = ()
    scope: str | None = None
    wait: float | None = None

    def __post_init__(self) -> None:
        """Refuse a single status without its comma, and values that are not signs."""
        if not isinstance(self.statuses, tuple) or not all(isinstance(status, int) for status in self.statuses):
            raise ConfigurationError(f"statuses must be a tuple of numbers, not {self.statuses!r}: Refusal((429,))")
        require_sources(source for source, _ in self.signs)


STANDARD_REFUSALS = (
    Refusal((429,)),
    Refusal((503,), (("retry-after", "*"),)),
    Refusal((503,), (("retry-after-ms", "*"),)),
    Refusal((503,), (("x-ms-retry-after-ms", "*"),)),
)
"""A 429 refuses (RFC 6585), and so does a 503 that says when to come back (RFC 9110)."""


@dataclass(frozen=True, slots=True)
class Ban:
    """When an API bans a client: at ``count`` answers with one of ``statuses`` within ``seconds``.

    Refusals of the scopes ``uncounted`` do not count.
    """

    statuses: tuple[int, ...]
    count: int
    seconds: float
    uncounted: tuple[str, ...] = ()


@shows_use('Profile(name="example", limits=(limit,))')
@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """How to read the answers of an API; ``source`` is the page that documents them.

    * ``limits``: where answers state limits. Of two limits with one name, the first one present counts.
    * ``drafts``: headers in the syntax of the IETF drafts, each with its ``-policy``; they come before ``limits``.
    * ``refusals``: the first that matches an answer makes it a refusal.
    * ``waits``: sources of the time to wait, in seconds, before ``Retry-After`` and its kin.
    * ``scopes``: sources that say whom or what a refusal is about. ``covers_all``: each of these signs says that it
      concerns all requests, not only those of this bucket.
    * ``routes``: which requests share a bucket, as far as their paths show. ``ban``: what leads to a ban.
    * ``hidden_rate`` and ``hidden_concurrency``: limits that answers do not report, and that a transport searches for.
    * ``signs``: headers that no other API sends. A profile with ``candidates`` reads an answer by the first candidate
      whose sign the answer has, and otherwise by itself.
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
    hidden_rate: HiddenRate | None = None
    hidden_concurrency: HiddenConcurrency | None = None
    signs: tuple[str, ...] = ()
    candidates: tuple[Profile, ...] = ()
    candidates_by_sign: Mapping[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Refuse data that a profile cannot have."""
        if not isinstance(self.limits, tuple) or not all(isinstance(each, LimitHeaders) for each in self.limits):
            raise ConfigurationError(f"limits must be a tuple of LimitHeaders, not {self.limits!r}: limits=(limit,)")
        for name, headers in (("drafts", self.drafts), ("signs", self.signs)):
            if not isinstance(headers, tuple):
                raise ConfigurationError(f'{name} must be a tuple of headers, not {headers!r}: {name}=("ratelimit",)')
        require_sources((*self.drafts, *self.signs, *each_source(self.waits), *each_source(self.scopes)))
        require_sources(source for source, _ in self.covers_all)
        numbers = [(sign, number) for number, each in enumerate(self.candidates) for sign in each.signs]
        object.__setattr__(self, "candidates_by_sign", dict(reversed(numbers)))
