"""Which requests may go, according to the answers of their servers: a model without a timer, a task or a lock.

The methods of ``Model`` are the events: a request comes, is sent, has its answer or fails, or leaves. Each of them
takes the time. For each request that waits, the model sets when it tries again (``Call.wake``).

A route with waiting requests always waits for exactly one bucket. The first request in the queue of a bucket always
tries again when that bucket is ready, which is a finite time. So no request waits forever.

Times are microseconds. No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar
from weakref import WeakSet, WeakValueDictionary

from ...headers import ServerLimit, ServerLimits
from ...hooks import ChangeKind
from ...profiles import Profile
from ...profiles.definitions import NO_ROUTES
from ...quotas import SECOND_US
from ...waiting.drivers import WakeUp
from .hidden import RateBucket
from .learned_buckets import LEAST, SERVER_ERROR, Bucket, PioneerBucket, Rate, ReportedBucket

# A bucket that the answers to this many pioneers in a row do not report no longer belongs to their route.
MAX_MISSES = 3

# The most hosts, and the most routes of a host; beyond that, those that were not used for the longest time go.
MAX_HOSTS = 1_000
MAX_ROUTES = 10_000

# A route that was not used for this long and holds nobody up is forgotten, with the last one its section and buckets.
FORGET_AFTER_US = 600 * SECOND_US

# At this part of the answers that lead to a ban, a host is left alone.
BEFORE_A_BAN = 0.9

# The name of the bucket of all requests to a host.
EVERYTHING = "everything"

# Called with a host, a bucket, and a change: its kind, and a text.
OnChange = Callable[[str, Bucket, ChangeKind, str], None]

T = TypeVar("T", "Host", "Route")


class LearnedLimit(NamedTuple):
    """A bucket as one process describes it to others."""

    name: str
    limit: float
    cost: float
    rate: Rate | None


class Record(NamedTuple):
    """What one process publishes about a route: the ``profile`` of its host's answers, and its limits."""

    profile: str
    limits: tuple[LearnedLimit, ...]


@dataclass(slots=True, weakref_slot=True, eq=False, repr=False)
class Section:
    """Routes that begin alike: their pioneer, and the buckets of their last answer, which a new route begins with."""

    name: str
    pioneer: PioneerBucket
    buckets: tuple[ReportedBucket, ...] = ()
    record: Record | None = None
    """What other processes know about its routes, as of ``recorded_us``."""
    recorded_us: float = -math.inf
    read_us: float = -math.inf
    """When ``record`` was last read."""


@dataclass(slots=True, eq=False, repr=False)
class Route:
    """Requests that are limited alike, as far as is known; ``buckets`` are those that the last answer has reported.

    ``former`` are others before them: some servers report only the limit of which the least is left. One that a refusal
    has paused still holds up requests. ``waits_for`` is the bucket that its queue waits for.
    """

    key: str
    section: Section
    quota: tuple[Bucket, ...] = ()
    """One that stands for the declared quota, if it counts these requests."""
    buckets: tuple[ReportedBucket, ...] = ()
    former: tuple[ReportedBucket, ...] = ()
    is_known: bool = False
    queue: OrderedDict[Call, None] = field(default_factory=OrderedDict)
    waits_for: Bucket | None = None
    used_us: float = 0.0

    def is_idle(self, now_us: float) -> bool:
        """Whether nothing is lost when the route is forgotten."""
        holds_up = any(bucket.ready_at(now_us) > now_us for bucket in self.known)
        return not (self.queue or holds_up) and self.section.pioneer.is_idle(now_us)

    @property
    def known(self) -> tuple[ReportedBucket, ...]:
        """The buckets that are known to limit its requests now."""
        refusing = [each for each in self.former if each.refusals and each.paused_until_us]
        return (*self.buckets, *[each for each in refusing if each not in self.buckets])

    def needed(self, host: Host) -> tuple[Bucket, ...]:
        """All buckets that a request needs; while nothing is known about the route, those of its section or host."""
        known = self.known if self.is_known else self.section.buckets or host.shared
        return (host.everything, *self.quota, *host.hidden, self.section.pioneer, *known)


@dataclass(slots=True, eq=False, repr=False)
class Host:
    """Everything that is known about a server.

    ``everything`` stands for all of them, and ``hidden`` is the search for a rate, if there is one. ``shared`` are the
    buckets of the last answer, if it does not distinguish them from others. ``bad`` are the times of answers that lead
    to a ban.
    """

    name: str
    profile: Profile
    everything: PioneerBucket
    hidden: tuple[RateBucket, ...]
    quota: tuple[Bucket, ...]
    """One that stands for the declared quota, if there is one; the store decides about it."""
    bad: deque[float] = field(default_factory=deque)
    shared: tuple[ReportedBucket, ...] = ()
    routes: OrderedDict[str, Route] = field(default_factory=OrderedDict)
    sections: WeakValueDictionary[str, Section] = field(default_factory=WeakValueDictionary)
    """Those of its routes."""
    buckets: WeakValueDictionary[str, ReportedBucket] = field(default_factory=WeakValueDictionary)
    """Those that a route, a section, ``shared`` or a request under way refers to."""
    used_us: float = math.inf
    """A host is forgotten only if there are too many."""

    def is_idle(self, now_us: float) -> bool:
        """Whether nothing is lost when the host is forgotten."""
        return self.everything.is_idle(now_us) and all(route.is_idle(now_us) for route in self.routes.values())

    @property
    def has_routes(self) -> bool:
        """Whether the profile says which requests share a bucket."""
        return self.profile.routes != NO_ROUTES


@dataclass(slots=True, weakref_slot=True, eq=False, repr=False)
class Call:
    """A request that waits, or is under way.

    ``at_us`` is when it checks again whether it may go. ``admitted`` are the buckets in which it was counted, each with
    its epoch at that time.
    """

    host: Host
    route: Route
    path: str
    deadline_us: float = math.inf
    soonest_us: float = 0.0
    """The declared quota lets it go no sooner, because of those that wait before it."""
    is_late: bool = False
    """Its turn could not come in time when it was woken, so that it wakes whatever comes."""
    is_admitted: bool = False
    is_sent: bool = False
    admitted: list[tuple[Bucket, int]] = field(default_factory=list)
    wake_up: Any = None
    taken: Any = None
    """What was taken for it in the store."""
    further_s: float = 0.0
    """How much further ahead than others it may book, because the store has refused it so often."""
    polls: int = 0
    """How often it has checked whether the pioneer of another process has its answer."""

    def wake(self, at_us: float) -> None:
        """Check again at ``at_us``, or at the deadline if that comes first."""
        self.wake_up.set(0.0 if self.is_late else at_us)


class Model:
    """Everything that is known about all hosts. ``on_change`` is called when a limit is learned, or a pause begins."""

    def __init__(self, profile: Profile, on_change: OnChange, *, has_quota: bool = False) -> None:
        self.hosts: OrderedDict[str, Host] = OrderedDict()
        self._by_loop: dict[Any, WeakSet[Call]] = {}
        self._profile = profile
        self._on_change = on_change
        self._has_quota = has_quota

    def call(self, host_name: str, method: str, path: str, deadline_us: float, now_us: float) -> Call:
        """A request that is to be sent."""
        host = self.hosts.get(host_name) or self._new_host(host_name, now_us)
        key = host.profile.routes.route(method, path)
        route = host.routes.get(key)
        if route is None:
            _forget(host.routes, now_us)
            is_exempt = not set(self._profile.quota_exempt).isdisjoint(path.split("/"))
            quota = () if is_exempt else host.quota
            route = host.routes[key] = Route(key, _section(host, key, path, now_us), quota, used_us=now_us)
        host.routes.move_to_end(key)
        self.hosts.move_to_end(host_name)
        return Call(host, route, path, deadline_us)

    def begin(self, call: Call, wake_up: WakeUp, now_us: float) -> None:
        """Let a request be woken by this. Requests on event loops that are closed meanwhile can never go on: they end.

        Their tasks may still be referred to, so that nothing else ends them.
        """
        call.wake_up = wake_up
        call.wake(math.inf)
        self._by_loop.setdefault(wake_up.loop, WeakSet()).add(call)
        for loop in [each for each in self._by_loop if each is not None and each.is_closed()]:
            for gone in self._by_loop.pop(loop):
                (self.died if gone.is_sent else self.left)(gone, now_us)

    def ask(self, call: Call, now_us: float, *, is_first: bool = False) -> None:
        """Admit a request, or let it wait behind all others of its route, or, if it ``is_first``, before them."""
        route = call.route
        route.used_us, call.is_admitted = now_us, False
        blocked = None if route.queue else _blocked_by(call.host, route, now_us)
        if not route.queue and blocked is None:
            _admit(call, now_us)
            return
        call.wake(math.inf)
        route.queue[call] = None
        if blocked is not None:
            _wait_for(route, blocked, now_us)
        if is_first and route.waits_for is not None:  # it has had its turn, also among the routes
            route.queue.move_to_end(call, last=False)
            route.waits_for.waiting.move_to_end(route, last=False)
            _set_wake_up(route.waits_for, now_us)

    def again(self, call: Call, now_us: float) -> None:
        """Let an admitted request wait again, before all others of its route."""
        self.left(call, now_us)
        self.ask(call, now_us, is_first=True)

    def not_before(self, call: Call, now_us: float) -> float:
        """A time before which no request of a call's route may go, whatever answers come."""
        needed = [(bucket, bucket.ready_at(now_us)) for bucket in call.route.needed(call.host)]
        return max([now_us, *[ready_us for bucket, ready_us in needed if bucket.is_certain(now_us)]])

    def ready_at(self, call: Call, now_us: float) -> float:
        """The latest time at which the first request of a call's route may go, as far as is known."""
        return max(bucket.ready_at(now_us) for bucket in call.route.needed(call.host))

    def woke(self, call: Call, now_us: float) -> None:
        """Check whether a waiting request, or any that wait for the same bucket, may go."""
        call.is_late = False
        if call in call.route.queue and call.route.waits_for is not None:
            call.wake(math.inf)
            _release(call.host, call.route.waits_for, now_us)

    def left(self, call: Call, now_us: float) -> None:
        """Note that a request will not be sent: it waited too long, or was cancelled, or is admitted but not sent."""
        route = call.route
        if call.is_admitted:
            for bucket, epoch in call.admitted:
                bucket.withdraw(epoch)
            self._end(call, now_us)
        elif route.queue.pop(call, call) is None:
            waited_for = route.waits_for
            if not route.queue:
                _stop_waiting(route)
            _set_wake_up(waited_for, now_us)

    def is_held_up(self, call: Call, now_us: float) -> bool:
        """Whether an admitted request may no longer go, because a pause has begun."""
        return any(bucket.holds_up(epoch, now_us) for bucket, epoch in call.admitted)

    def sends(self, call: Call, now_us: float) -> bool:
        """Whether an admitted request is sent now; if it may not go, it waits again."""
        if self.is_held_up(call, now_us):
            self.again(call, now_us)
            return False
        call.admitted = [(bucket, bucket.send(now_us)) for bucket, _ in call.admitted]
        call.is_sent, call.polls, call.further_s = True, 0, 0.0
        for bucket, _ in reversed(call.admitted):  # those that wait for a reported limit go before others of the quota
            if bucket.waiting and bucket.asking < math.inf:  # others may have waited for the store's decision
                _release(call.host, bucket, now_us)
        return True

    def died(self, call: Call, now_us: float) -> None:
        """Note that a request has failed, and that no answer will come."""
        self._pioneer_failed(call, "no answer")
        for bucket, epoch in call.admitted:
            bucket.end(epoch, now_us)
        self._end(call, now_us)

    def answered(self, call: Call, status: int, report: ServerLimits, now_us: float) -> tuple[PioneerBucket, ...]:
        """Learn from an answer, which reports these limits of the server; return the buckets that it pauses."""
        host, route = call.host, call.route
        self._judge(call, status, report, now_us)
        for bucket, epoch in call.admitted:
            bucket.end(epoch, now_us)
        self._recognise(host, report.profile)
        limits = [limit for limit in report.limits if limit.remaining is not None]
        reported = self._learn(call, limits, now_us, is_refusal=report.is_throttled)
        is_failed = not limits and not report.is_throttled and status >= SERVER_ERROR
        if is_failed:
            self._pioneer_failed(call, f"an answer {status} that reports no limit")
        self._end_probes(call, reported, status, is_failed, now_us)
        if limits and not host.has_routes and all(limit.bucket is None for limit in limits):
            host.shared = reported
        self._set_buckets(host, route, reported, status < SERVER_ERROR and not report.is_throttled)
        paused: tuple[PioneerBucket, ...] = ()
        if report.is_throttled:
            paused = self._refuse(call, report, reported, now_us)
        else:
            for each in (host.everything, route.section.pioneer, *reported):
                each.refusals = 0
        self._count_bad(host, status, report, now_us)
        self._end(call, now_us, *reported)
        _wait_elsewhere(host, route, now_us)
        is_spent = any(bucket.is_certain(now_us) and bucket.ready_at(now_us) > now_us for bucket in reported)
        routes = host.routes.values() if paused or is_spent else ()  # there may be thousands
        for waiting in [each.queue for each in routes if each.queue]:
            soonest_us = self.not_before(next(iter(waiting)), now_us)
            for late in [each for each in waiting if each.deadline_us < soonest_us]:
                late.is_late = True
                late.wake(now_us)
        return paused

    def adopt(self, call: Call, record: Record, now_us: float, ahead_us: float) -> None:
        """Go on with what another process has learned of the route of a request, as if an answer had reported it."""
        host, route = call.host, call.route
        self._recognise(host, record.profile)
        buckets: dict[ReportedBucket, None] = {}
        for limit in record.limits:
            bucket = self._bucket(host, limit.name, now_us)
            before = bucket.limit
            bucket.adopt(limit.limit, limit.cost, limit.rate, now_us, ahead_us)
            self._limit_changed(host, bucket, before, now_us)
            buckets[bucket] = None
        self._set_buckets(host, route, tuple(buckets), True)
        route.section.record, route.section.recorded_us = record, now_us
        opened = [route.section.pioneer, *([host.everything] if host.everything.epoch == 1 else [])]
        for pioneer in opened:
            pioneer.open()
        _wait_elsewhere(host, route, now_us)
        for pioneer in opened:
            _release(host, pioneer, now_us)

    def _new_host(self, name: str, now_us: float) -> Host:
        _forget(self.hosts, now_us, MAX_HOSTS)
        quota = (Bucket("declared quota", asking=1.0),) if self._has_quota else ()
        hidden = () if self._profile.hidden_rate is None else (RateBucket(self._profile.hidden_rate),)
        host = self.hosts[name] = Host(name, self._profile, PioneerBucket(EVERYTHING), hidden, quota)
        if not host.has_routes:
            host.everything.probe(now_us)
        return host

    def _bucket(self, host: Host, key: str, now_us: float) -> ReportedBucket:
        """The bucket of this name."""
        bucket = host.buckets.get(key)
        if bucket is None:
            bucket = host.buckets[key] = ReportedBucket(key)
            bucket.probe(now_us)
        return bucket

    def _recognise(self, host: Host, profile_name: str) -> None:
        """Note that the answers are those of an API: from now on, its profile distinguishes routes."""
        if profile_name != host.profile.name:
            host.shared = ()
            host.profile = next((each for each in self._profile.candidates if each.name == profile_name), host.profile)

    def _pioneer_failed(self, call: Call, why: str) -> None:
        for bucket, epoch in probed(call):
            if bucket.is_probed and epoch == bucket.epoch:
                self._on_change(call.host.name, bucket, "pioneer failed", f"{why}, so another request goes first")
                return

    def _end_probes(
        self, call: Call, reported: Sequence[ReportedBucket], status: int, is_failed: bool, now_us: float
    ) -> None:
        """Let the others go that wait for this answer; a bucket that pioneers miss again and again is forgotten."""
        route, section = call.route, call.route.section
        for bucket, epoch in probed(call):
            if bucket in reported or epoch != bucket.epoch:
                continue
            if is_failed or isinstance(bucket, ReportedBucket):
                bucket.miss(now_us)
            else:
                bucket.open()
            if isinstance(bucket, ReportedBucket) and bucket.misses >= MAX_MISSES and status < SERVER_ERROR:
                route.buckets = tuple(each for each in route.buckets if each is not bucket)
                section.buckets = tuple(each for each in section.buckets if each is not bucket)

    def _set_buckets(self, host: Host, route: Route, reported: tuple[ReportedBucket, ...], is_served: bool) -> None:
        """Set the buckets of a route to those that its last answer has reported, if any."""
        if reported and route.buckets and set(reported) != set(route.buckets):
            names = " and ".join(bucket.name for bucket in route.buckets)
            self._on_change(host.name, reported[0], "migrated", f"{route.key} uses this instead of {names}")
            route.former = route.known
        if reported:
            route.buckets = route.section.buckets = reported
        route.is_known |= bool(reported) or is_served

    def _learn(
        self, call: Call, limits: list[ServerLimit], now_us: float, *, is_refusal: bool
    ) -> tuple[ReportedBucket, ...]:
        """Learn what an answer reports; return the buckets that it is about."""
        epochs = dict(call.admitted)
        reported: dict[ReportedBucket, None] = {}
        for limit in limits:
            key = f"{limit.name} at {limit.limit}"
            if limit.bucket is not None:
                major = call.host.profile.routes.major_parameters(call.path)
                key = " ".join(filter(None, (limit.bucket, limit.name, major)))
            elif call.host.has_routes:
                key = f"{key} of {call.route.key}"
            bucket = self._bucket(call.host, key, now_us)
            before, epoch = bucket.limit, epochs.get(bucket, bucket.epoch)
            bucket.learn(limit, epoch, now_us, is_refusal=is_refusal)
            self._limit_changed(call.host, bucket, before, now_us)
            reported[bucket] = None
        return tuple(reported)

    def _limit_changed(self, host: Host, bucket: ReportedBucket, before: float, now_us: float) -> None:
        if bucket.limit == before:
            return
        was = f" (it was {before:g})" if before < math.inf else ""
        more_us = bucket.more_at(now_us) - now_us
        more = f", more in {more_us / SECOND_US:.3g} s" if more_us > 0.0 else ""
        text = f"limit {bucket.limit:g}{was}, {max(bucket.available, 0.0):g} left{more}"
        self._on_change(host.name, bucket, "limit changed" if was else "learned", text)

    def _refuse(
        self, call: Call, report: ServerLimits, reported: tuple[ReportedBucket, ...], now_us: float
    ) -> tuple[PioneerBucket, ...]:
        """Pause what a refusal is about: everything, the exhausted buckets, all that it names, or the whole server."""
        host = call.host
        exhausted = tuple(bucket for bucket in reported if bucket.available < max(bucket.cost, LEAST))
        paused: tuple[PioneerBucket, ...] = exhausted or reported or (call.route.section.pioneer,)
        if report.covers_all or report.scope == "cloudflare" or not (reported or host.has_routes):
            paused = (host.everything,)
        wait_us = None if report.retry_after is None else math.ceil(report.retry_after * SECOND_US)
        if wait_us is None and host.hidden and not exhausted and not any(each.in_a_row > 1 for each in host.hidden):
            return ()
        hint = "" if host.buckets or host.hidden or host.has_routes else "; it reports no limit: profile=aimd(0.5, 100)"
        for bucket in paused:
            before_us = bucket.paused_us(now_us)
            bucket.refuse(now_us, wait_us)
            paused_us = bucket.paused_us(now_us)
            if paused_us > 1.1 * before_us:  # else another request of the same moment has told of it
                self._on_change(host.name, bucket, "paused", f"refused, paused for {paused_us / SECOND_US:.3g} s{hint}")
        return paused

    def _judge(self, call: Call, status: int, report: ServerLimits, now_us: float) -> None:
        """Let the search for a hidden rate learn from an answer, unless a limit that is reported is why it refuses."""
        is_served = not report.is_throttled and status < SERVER_ERROR
        is_hidden = all(limit.remaining is None or limit.remaining >= 1.0 for limit in report.limits)
        wait_us = (report.retry_after or 0.0) * SECOND_US
        for bucket, epoch in call.admitted:
            if isinstance(bucket, RateBucket):
                if is_served:
                    bucket.serve(now_us)
                elif report.is_throttled and is_hidden and bucket.refuse(epoch, wait_us, now_us):
                    text = f"refused, on with {bucket.limit:.3g} requests a second"
                    self._on_change(call.host.name, bucket, "limit changed", text)

    def _count_bad(self, host: Host, status: int, report: ServerLimits, now_us: float) -> None:
        """Count an answer that leads to a ban, if there are too many of them; nearly too many stop the host."""
        ban = host.profile.ban
        if ban is None or status not in ban.statuses or report.scope in ban.uncounted:
            return
        host.bad.append(now_us)
        while host.bad[0] <= now_us - ban.seconds * SECOND_US:
            host.bad.popleft()
        until_us = host.bad[0] + ban.seconds * SECOND_US
        if len(host.bad) >= ban.count * BEFORE_A_BAN:
            host.everything.pause(until_us)
            wait_s = (until_us - now_us) / SECOND_US
            text = f"{len(host.bad)} answers of {ban.count} that lead to a ban, paused for {wait_s:.3g} s"
            self._on_change(host.name, host.everything, "paused", text)

    def _end(self, call: Call, now_us: float, *others: Bucket) -> None:
        """Let others go, now that a call has ended."""
        admitted, call.admitted, call.is_admitted, call.is_sent = call.admitted, [], False, False
        for bucket in (*(bucket for bucket, _ in admitted), *others):
            if bucket.waiting:
                _release(call.host, bucket, now_us)


def probed(call: Call) -> list[tuple[PioneerBucket, int]]:
    """Those of a call's admitted buckets that answers and other processes say something about, with their epochs."""
    return [(bucket, epoch) for bucket, epoch in call.admitted if isinstance(bucket, PioneerBucket)]


def _section(host: Host, key: str, path: str, now_us: float) -> Section:
    """The section of a path: its first segment, or, if the profile distinguishes routes, the route itself."""
    name = key if host.has_routes else f"/{path.strip('/').partition('/')[0][:64]}"
    section = host.sections.get(name)
    if section is None:
        section = host.sections[name] = Section(name, PioneerBucket(name))
        section.pioneer.probe(now_us)
    return section


def _forget(items: OrderedDict[str, T], now_us: float, most: int = MAX_ROUTES) -> None:
    """Forget the oldest items, a few at a time: those that are old, or above ``most``. Others become the newest."""
    for key in [key for key, _ in zip(items, range(4))]:
        each = items[key]
        if len(items) >= most or each.used_us < now_us - FORGET_AFTER_US:
            if each.is_idle(now_us):
                del items[key]
            else:
                items.move_to_end(key)


def _release(host: Host, bucket: Bucket, now_us: float) -> None:
    """Admit requests that wait for a bucket as long as it is ready, one of each route in turn."""
    while bucket.waiting and bucket.ready_at(now_us) <= now_us:
        route = next(iter(bucket.waiting))
        _stop_waiting(route)
        blocked = _blocked_by(host, route, now_us)
        if blocked is None:
            _admit(route.queue.popitem(last=False)[0], now_us)
            blocked = (_blocked_by(host, route, now_us) or bucket) if route.queue else None
        if blocked is not None:
            _wait_for(route, blocked, now_us)
    _set_wake_up(bucket, now_us)


def _wait_elsewhere(host: Host, route: Route, now_us: float) -> None:
    """Let a route wait for a bucket that it needs, after an answer has reported another one."""
    waited_for = route.waits_for
    if waited_for is not None and waited_for not in route.needed(host):
        _stop_waiting(route)
        _set_wake_up(waited_for, now_us)
        _wait_for(route, _blocked_by(host, route, now_us) or route.section.pioneer, now_us)
        _release(host, route.section.pioneer, now_us)


def _blocked_by(host: Host, route: Route, now_us: float) -> Bucket | None:
    """The bucket that a route has to wait for the longest."""
    blocked, latest_us = None, now_us
    for bucket in route.needed(host):
        ready_us = bucket.ready_at(now_us)
        if ready_us > latest_us:
            blocked, latest_us = bucket, ready_us
    return blocked


def _admit(call: Call, now_us: float) -> None:
    """Let a request go: all buckets that it needs count it."""
    call.admitted = [(bucket, bucket.admit(now_us)) for bucket in call.route.needed(call.host)]
    call.is_admitted = True
    call.wake(0.0)


def _wait_for(route: Route, bucket: Bucket, now_us: float) -> None:
    """Let a route wait for a bucket, behind the other routes that do."""
    route.waits_for, bucket.is_awaited = bucket, True
    bucket.waiting[route] = None
    _set_wake_up(bucket, now_us)


def _stop_waiting(route: Route) -> None:
    """Let a route wait for no bucket; one with waiting requests has to wait for another one then."""
    bucket, route.waits_for = route.waits_for, None
    if bucket is not None:
        bucket.waiting.pop(route, None)


def _set_wake_up(bucket: Bucket | None, now_us: float) -> None:
    """Let the first request that waits for a bucket try again when the bucket is ready."""
    if bucket is not None and bucket.waiting:
        first = next(iter(next(iter(bucket.waiting)).queue))
        first.wake(bucket.ready_at(now_us))
