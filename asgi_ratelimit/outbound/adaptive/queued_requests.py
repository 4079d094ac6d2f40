"""Requests that wait for a server's buckets, and the routes and hosts that they belong to.

Times are microseconds. No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from ...profiles import Ban, Profile
from ...profiles.shared_routes import NO_ROUTES, Routes
from .hidden import HiddenBucket
from .server_buckets import Bucket, PioneerBucket, ProbedBucket, Rate, ReportedBucket

PARTS = 60
"""The number of parts of the time of a ``Ban``; answers are counted for each part."""


class BadAnswers:
    """How many recent answers were of the kinds that lead to a ban, and how long to wait before more may come."""

    def __init__(self) -> None:
        self._parts: deque[tuple[int, int]] = deque()
        self.count = 0

    def add(self, ban: Ban, now_us: float) -> float | None:
        """Count an answer; return for how many microseconds to send nothing, if there are nearly too many."""
        length_us = ban.seconds * 1e6 / PARTS
        part = int(now_us // length_us)
        if self._parts and self._parts[-1][0] == part:
            self._parts[-1] = part, self._parts[-1][1] + 1
        else:
            self._parts.append((part, 1))
        while self._parts[0][0] <= part - PARTS:
            self._parts.popleft()
        self.count = sum(count for _, count in self._parts)
        if self.count < ban.count * 0.9:
            return None
        return (self._parts[0][0] + PARTS) * length_us - now_us


class LearnedLimit(NamedTuple):
    """A bucket as one process describes it to others."""

    name: str
    limit: float
    cost: float
    rate: Rate | None


@dataclass(frozen=True, slots=True)
class Record:
    """What one process publishes about a route: the ``profile`` of its host's answers, and its limits.

    ``is_of_all``: all routes share them.
    """

    profile: str
    limits: tuple[LearnedLimit, ...]
    is_of_all: bool


@dataclass(slots=True, eq=False, repr=False)
class Route:
    """Requests that are limited alike, as far as is known. ``pioneer_bucket`` lets a pioneer go before the others.

    ``buckets`` are those that the last answer has reported. ``waits_for`` is the bucket that its queue waits for.
    """

    key: str
    section: Section
    pioneer_bucket: PioneerBucket
    major: str = ""
    """The part of its path that is added to the names of its buckets, by the rules ``majors_by``."""
    majors_by: Routes | None = None
    buckets: tuple[ReportedBucket, ...] = ()
    is_known: bool = False
    queue: OrderedDict[Call, None] = field(default_factory=OrderedDict)
    waits_for: Bucket | None = None
    used_us: float = 0.0

    def needed(self, host: Host) -> tuple[Bucket, ...]:
        """All buckets that a request needs; those of its section if nothing is known about the route."""
        section = self.section
        known = self.buckets if self.is_known else section.believed(host)
        return (host.everything, *host.hidden, section.pioneer_bucket, self.pioneer_bucket, *known)


@dataclass(slots=True, eq=False, repr=False)
class Section:
    """Routes that begin alike. A new route is assumed to have the buckets of the last answer."""

    pioneer_bucket: PioneerBucket
    buckets: tuple[ReportedBucket, ...] = ()
    record: Record | None = None
    """What other processes know about its routes, as of ``recorded_us``."""
    recorded_us: float = -math.inf
    read_us: float = -math.inf
    """When ``record`` was last read."""

    def believed(self, host: Host) -> tuple[ReportedBucket, ...]:
        """The assumed buckets of a route about which nothing is known yet."""
        return self.buckets or host.shared


@dataclass(slots=True, eq=False, repr=False)
class Host:
    """Everything that is known about a server. ``everything`` is the bucket of all its requests.

    ``shared`` are the buckets of the last answer, if it does not distinguish them from others. ``hidden`` are those of
    limits that no answer reports, if the profile asks to search for them.
    """

    name: str
    profile: Profile
    everything: PioneerBucket
    hidden: tuple[HiddenBucket, ...] = ()
    shared: tuple[ReportedBucket, ...] = ()
    routes: OrderedDict[str, Route] = field(default_factory=OrderedDict)
    sections: dict[str, Section] = field(default_factory=dict)
    buckets: OrderedDict[str, ReportedBucket] = field(default_factory=OrderedDict)
    living: WeakValueDictionary[str, ReportedBucket] = field(default_factory=WeakValueDictionary)
    """All buckets that anything refers to, such as a route, also those that are no longer among ``buckets``."""
    bad: BadAnswers = field(default_factory=BadAnswers)

    @property
    def has_routes(self) -> bool:
        """Whether the profile says which requests share a bucket."""
        return self.profile.routes != NO_ROUTES


@dataclass(slots=True, eq=False, repr=False)
class Call:
    """A request that waits, or is under way.

    ``at_us`` is when it checks again whether it may go. ``admitted`` are the buckets in which it was counted, each with
    the number that it gave to this request.
    """

    host: Host
    route: Route
    path: str
    deadline_us: float = math.inf
    at_us: float = math.inf
    is_admitted: bool = False
    is_sent: bool = False
    sent_us: float = 0.0
    admitted: list[tuple[Bucket, int]] = field(default_factory=list)
    wake_up: Any = None
    taken: list[Any] = field(default_factory=list)
    """What was taken for it in the store."""
    polls: int = 0
    """How often it has checked whether the pioneer of another process has its answer."""

    def probed(self) -> list[tuple[ProbedBucket, int]]:
        """Those of its ``admitted`` buckets that answers and other processes say something about, with their epochs."""
        return [(bucket, epoch) for bucket, epoch in self.admitted if isinstance(bucket, ProbedBucket)]

    def wake(self, at_us: float) -> None:
        """Check again at ``at_us``, or at the deadline if that comes first."""
        self.at_us = min(at_us, self.deadline_us)
        if self.wake_up is not None:
            self.wake_up.set(self.at_us)
