"""Which requests may go, by what the answers of their servers have told: a model without a timer, a task or a lock.

It is told what happens, and at what time. Of the requests that wait, it sets when each looks again (``Call.wake``).
A route with waiting requests always waits for exactly one bucket; the first request in the queue of a bucket always
looks again when that bucket is ready, which is a finite time. So no request waits for ever.

Times are microseconds. No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

from ...headers import ServerLimit, ServerLimits
from ...hooks import ChangeKind
from ...profiles import Profile
from ...quotas import SECOND_US
from .bucket import LEAST, Bucket
from .calls import Call, Host, LearnedLimit, Record, Route, Section
from .hidden import HiddenBucket, Outcome, hidden_buckets

MAX_HOSTS = 1_000
MAX_ROUTES = 10_000
"""The most routes and buckets of a host; beyond, those that were not used for the longest time are forgotten."""

FORGET_AFTER_US = 600 * SECOND_US
"""A route that was not used for so long is forgotten."""

MAX_MISSES = 3
"""A bucket that so many pioneers in a row have not been told of is none of their route any more."""

SERVER_ERROR = 500

T = TypeVar("T")

OnChange = Callable[[str, Bucket, ChangeKind, str], None]
"""Called with a host, a bucket, and what has changed about it: as one of a few kinds, and in words."""


class Model:
    """What is known of all hosts. ``on_change`` is called when a limit is learned, or a pause begins."""

    def __init__(self, profile: Profile, on_change: OnChange) -> None:
        self.hosts: OrderedDict[str, Host] = OrderedDict()
        self._profile = profile
        self._on_change = on_change

    def call(self, host_name: str, method: str, path: str, deadline_us: float, now_us: float) -> Call:
        """A request that is to be sent."""
        host = self._host(host_name, now_us)
        route = self._route(host, method, path, now_us)
        return Call(host, route, path, deadline_us, deadline_us)

    def ask(self, call: Call, now_us: float, *, is_first: bool = False) -> None:
        """Admit a request, or let it wait; one that ``is_first`` before all others of its route."""
        route = call.route
        route.used_us = now_us
        call.is_admitted = False
        if not route.queue:
            blocked = self._blocked_by(call.host, route, now_us)
            if blocked is None:
                self._admit(call, now_us)
                return
            route.queue[call] = None
            self._park(route, blocked, now_us)
            return
        route.queue[call] = None
        if is_first:
            route.queue.move_to_end(call, last=False)
            self._arm(route.waits_for, now_us)
        else:
            call.wake(math.inf)

    def again(self, call: Call, now_us: float) -> None:
        """A request that was admitted has to wait once more, before all others of its route."""
        self.left(call, now_us)
        self.ask(call, now_us, is_first=True)

    def adopt(self, call: Call, record: Record, now_us: float) -> None:
        """Go on with what another process has learned of the route of a request, as if an answer had reported it."""
        host, route = call.host, call.route
        self._recognise(host, record.profile)
        buckets = tuple([self._adopted(host, limit, now_us) for limit in record.limits])
        if record.is_of_all:
            host.shared = buckets
        self._know(host, route, buckets, True)
        route.section.record, route.section.recorded_us = record, now_us
        gates = [route.gate, route.section.gate, *([host.everything] if host.everything.window == 1 else [])]
        for gate in gates:
            gate.open(gate.window)
            gate.hold(0.0)
        self._wait_elsewhere(host, route, now_us)
        for gate in gates:
            self._release(host, gate, now_us)

    def not_before(self, call: Call, now_us: float) -> float:
        """A time before which no request of a call's route may go, whatever answers come."""
        return max(bucket.not_before(now_us) for bucket in call.route.needed(call.host))

    def ready_at(self, call: Call, now_us: float) -> float:
        """When the first request of a call's route may go at the latest, as far as is known."""
        return max(bucket.ready_at(now_us) for bucket in call.route.needed(call.host))

    def woke(self, call: Call, now_us: float) -> None:
        """A request that waits looks whether it, or any that wait for the same bucket, may go."""
        if call in call.route.queue and call.route.waits_for is not None:
            call.wake(math.inf)
            self._release(call.host, call.route.waits_for, now_us)

    def left(self, call: Call, now_us: float) -> None:
        """A request is not to be sent any more: it waited too long, or was cancelled, or is admitted but not sent."""
        if call.is_admitted:
            for bucket, window in call.admitted:
                bucket.withdraw(window)
            self._end(call, now_us)
            return
        route = call.route
        if route.queue.pop(call, call) is None:
            waited_for = route.waits_for
            if not route.queue:
                self._unpark(route)
            self._arm(waited_for, now_us)

    def sends(self, call: Call, now_us: float) -> bool:
        """An admitted request is sent now; if it may not go because a pause has begun, it waits once more."""
        if any(bucket.holds_up(window, now_us) for bucket, window in call.admitted):
            self.again(call, now_us)
            return False
        call.admitted = [(bucket, bucket.send(now_us)) for bucket, _ in call.admitted]
        return True

    def died(self, call: Call, now_us: float) -> None:
        """A request has failed, and no answer will come."""
        self._pioneer_failed(call, "no answer")
        for bucket, window in call.admitted:
            bucket.end(window, now_us)
        self._end(call, now_us)

    def answered(self, call: Call, status: int, said: ServerLimits, now_us: float) -> tuple[Bucket, ...]:
        """A request has its answer, which says this of the server's limits; returns the buckets that it pauses."""
        host, route = call.host, call.route
        self._judge(call, status, said, now_us)
        for bucket, window in call.admitted:
            bucket.end(window, now_us)
        self._recognise(host, said.profile)
        limits = [limit for limit in said.limits if limit.remaining is not None]
        reported = self._learn(call, limits, now_us)
        is_failed = not limits and not said.is_throttled and status >= SERVER_ERROR
        if is_failed:
            self._pioneer_failed(call, f"an answer {status} that reports no limit")
        for bucket, window in call.admitted:
            if bucket in (host.everything, route.section.gate, route.gate):
                bucket.miss(now_us) if is_failed else bucket.open(window)
            elif bucket not in reported and window == bucket.window:
                self._miss(route, bucket, status, now_us)
        if limits and not host.has_routes and all(limit.bucket is None for limit in limits):
            host.shared = reported
        self._know(host, route, reported, status < SERVER_ERROR and not said.is_throttled)
        paused: tuple[Bucket, ...] = ()
        if said.is_throttled:
            paused = self._refuse(call, said, reported, now_us)
        else:
            for bucket in (host.everything, route.gate, *reported):
                bucket.refusals = 0
        self._count_bad(host, status, said, now_us)
        self._end(call, now_us, *reported)
        self._wait_elsewhere(host, route, now_us)
        return paused

    def _pioneer_failed(self, call: Call, why: str) -> None:
        gate = next((bucket for bucket, window in call.admitted if bucket.is_probed and window == bucket.window), None)
        if gate is not None:
            self._on_change(call.host.name, gate, "pioneer failed", f"{why}, so another request goes first")

    def _wait_elsewhere(self, host: Host, route: Route, now_us: float) -> None:
        """Let a route wait for a bucket that it needs, where an answer has told that it is another one."""
        waited_for = route.waits_for
        if waited_for is not None and waited_for not in route.needed(host):
            self._unpark(route)
            self._arm(waited_for, now_us)
            self._park(route, self._blocked_by(host, route, now_us) or route.gate, now_us)
            self._release(host, route.gate, now_us)

    def _know(self, host: Host, route: Route, reported: tuple[Bucket, ...], is_served: bool) -> None:
        """The buckets of a route are those that its last answer has reported; it may have none."""
        if reported and route.buckets and set(reported) != set(route.buckets):
            names = " and ".join(bucket.name for bucket in route.buckets)
            self._on_change(host.name, reported[0], "migrated", f"{route.key} uses this instead of {names}")
        if reported:
            route.buckets, route.section.buckets, route.is_known = reported, reported, True
        elif is_served:
            route.is_known = True

    def _learn(self, call: Call, limits: list[ServerLimit], now_us: float) -> tuple[Bucket, ...]:
        """Learn what an answer reports; returns the buckets that it is about."""
        admitted = dict(call.admitted)
        reported: dict[Bucket, None] = {}
        for limit in limits:
            bucket = self._bucket(call, limit, now_us)
            before = bucket.limit
            bucket.learn(limit, admitted.get(bucket, bucket.window), now_us)
            reported[bucket] = None
            if bucket.limit != before:
                self._limit_changed(call.host, bucket, before, now_us)
        return tuple(reported)

    def _limit_changed(self, host: Host, bucket: Bucket, before: float, now_us: float) -> None:
        if before == math.inf:
            left = max(bucket.available, 0.0)
            more_us = bucket.more_at(now_us) - now_us
            text = f"limit {bucket.limit:g}, {left:g} left" + (
                f", more in {more_us / SECOND_US:.3g} s" if more_us else ""
            )
            self._on_change(host.name, bucket, "learned", text)
        else:
            self._on_change(host.name, bucket, "limit changed", f"limit {bucket.limit:g}, it was {before:g}")

    def _refuse(
        self, call: Call, said: ServerLimits, reported: tuple[Bucket, ...], now_us: float
    ) -> tuple[Bucket, ...]:
        """Pause what a refusal is about: everything, what is exhausted, all that it names, or the whole server."""
        host = call.host
        exhausted = tuple(bucket for bucket in reported if bucket.available < max(bucket.cost, LEAST))
        paused = exhausted or reported or (call.route.gate,)
        if said.covers_all or said.scope == "cloudflare" or not (reported or host.has_routes):
            paused = (host.everything,)
        wait_us = None if said.retry_after is None else math.ceil(said.retry_after * SECOND_US)
        if wait_us is None and host.hidden and not exhausted and not any(each.is_closed for each in host.hidden):
            return ()
        for bucket in paused:
            bucket.refuse(now_us, wait_us)
            seconds = (bucket.paused_until_us - now_us) / SECOND_US
            self._on_change(host.name, bucket, "paused", f"refused, paused for {seconds:.3g} s")
        return paused

    def _judge(self, call: Call, status: int, said: ServerLimits, now_us: float) -> None:
        """Let the limits that no answer reports learn from one."""
        is_hidden = said.is_throttled and all(
            limit.remaining is None or limit.remaining >= 1.0 for limit in said.limits
        )
        outcome = Outcome(status, said.is_throttled, is_hidden, (said.retry_after or 0.0) * SECOND_US)
        for bucket, number in call.admitted:
            change = bucket.judge(number, outcome, now_us) if isinstance(bucket, HiddenBucket) else ""
            if change:
                self._on_change(call.host.name, bucket, "limit changed", change)

    def _count_bad(self, host: Host, status: int, said: ServerLimits, now_us: float) -> None:
        ban = host.profile.ban
        if ban is None or status not in ban.statuses or said.scope in ban.uncounted:
            return
        wait_us = host.bad.add(ban, now_us)
        if wait_us is not None:
            host.everything.pause(now_us + wait_us)
            text = f"{host.bad.count} answers of {ban.count} that lead to a ban, paused for {wait_us / SECOND_US:.3g} s"
            self._on_change(host.name, host.everything, "paused", text)

    def _miss(self, route: Route, bucket: Bucket, status: int, now_us: float) -> None:
        bucket.miss(now_us)
        if bucket.misses >= MAX_MISSES and status < SERVER_ERROR:
            route.buckets = tuple(each for each in route.buckets if each is not bucket)
            section = route.section
            section.buckets = tuple(each for each in section.buckets if each is not bucket)

    def _end(self, call: Call, now_us: float, *others: Bucket) -> None:
        """Let others go, now that a call has ended."""
        admitted, call.admitted, call.is_admitted = call.admitted, [], False
        for bucket in dict.fromkeys([*(bucket for bucket, _ in admitted), *others]):
            self._release(call.host, bucket, now_us)

    def _release(self, host: Host, bucket: Bucket, now_us: float) -> None:
        """Admit requests that wait for a bucket as long as it is ready, one of each route in turn."""
        while bucket.waiting and bucket.ready_at(now_us) <= now_us:
            route = next(iter(bucket.waiting))
            self._unpark(route)
            blocked = self._blocked_by(host, route, now_us)
            if blocked is None:
                self._admit(route.queue.popitem(last=False)[0], now_us)
                if route.queue:
                    self._park(route, self._blocked_by(host, route, now_us) or bucket, now_us)
            else:
                self._park(route, blocked, now_us)
        self._arm(bucket, now_us)

    def _blocked_by(self, host: Host, route: Route, now_us: float) -> Bucket | None:
        """The bucket that a route has to wait for the longest."""
        blocked, latest_us = None, now_us
        for bucket in route.needed(host):
            ready_us = bucket.ready_at(now_us)
            if ready_us > latest_us:
                blocked, latest_us = bucket, ready_us
        return blocked

    def _admit(self, call: Call, now_us: float) -> None:
        needed = call.route.needed(call.host)
        call.admitted = [(bucket, bucket.admit(now_us)) for bucket in needed]
        call.is_admitted = True
        call.wake(0.0)

    def _park(self, route: Route, bucket: Bucket, now_us: float) -> None:
        route.waits_for = bucket
        bucket.waiting[route] = None
        self._arm(bucket, now_us)

    def _unpark(self, route: Route) -> None:
        bucket, route.waits_for = route.waits_for, None
        if bucket is not None:
            bucket.waiting.pop(route, None)

    def _arm(self, bucket: Bucket | None, now_us: float) -> None:
        """Let the first request that waits for a bucket look again when that is ready."""
        if bucket is not None and bucket.waiting:
            first = next(iter(next(iter(bucket.waiting)).queue))
            first.wake(bucket.ready_at(now_us))

    def _host(self, name: str, now_us: float) -> Host:
        host = self.hosts.get(name)
        if host is None:
            host = self.hosts[name] = Host(name, self._profile, Bucket("everything"), hidden_buckets(self._profile))
            if not host.has_routes:
                host.everything.probe(now_us)
            _forget(self.hosts, MAX_HOSTS, lambda each: not any(route.queue for route in each.routes.values()))
        self.hosts.move_to_end(name)
        return host

    def _route(self, host: Host, method: str, path: str, now_us: float) -> Route:
        key = host.profile.routes.route(method, path)
        route = host.routes.get(key)
        if route is None:
            gate = Bucket(key)
            gate.probe(now_us)
            route = host.routes[key] = Route(key, self._section(host, path, now_us), gate, used_us=now_us)
            old_us = now_us - FORGET_AFTER_US
            _forget(host.routes, MAX_ROUTES, lambda each: not each.queue and each.gate.is_idle(now_us))
            _forget(host.routes, 0, lambda each: each.used_us < old_us and not each.queue and each.gate.is_idle(now_us))
        host.routes.move_to_end(key)
        return route

    def _section(self, host: Host, path: str, now_us: float) -> Section:
        """Routes are told apart by the profile, or else those share a section whose paths begin alike."""
        if host.has_routes:
            return Section(Bucket("section"))
        name = path.strip("/").partition("/")[0][:64]
        section = host.sections.get(name)
        if section is None:
            section = Section(Bucket(f"/{name}"))
            section.gate.probe(now_us)
            if len(host.sections) < MAX_HOSTS:
                host.sections[name] = section
        return section

    def _bucket(self, call: Call, limit: ServerLimit, now_us: float) -> Bucket:
        """The bucket that an answer reports: by its name, and by the path where the profile says so."""
        host = call.host
        key = f"{limit.name} at {limit.limit}"
        if limit.bucket is not None:
            key = " ".join(filter(None, (limit.bucket, limit.name, host.profile.routes.major_parameters(call.path))))
        elif host.has_routes:
            key = f"{key} of {call.route.key}"
        bucket = host.buckets.get(key)
        if bucket is None:
            bucket = self._new_bucket(host, key, now_us)
        host.buckets.move_to_end(key)
        return bucket

    def _adopted(self, host: Host, limit: LearnedLimit, now_us: float) -> Bucket:
        bucket = host.buckets.get(limit.name) or self._new_bucket(host, limit.name, now_us)
        before = bucket.limit
        bucket.adopt(limit.limit, limit.cost, limit.rate, now_us)
        if bucket.limit != before:
            self._limit_changed(host, bucket, before, now_us)
        return bucket

    def _new_bucket(self, host: Host, key: str, now_us: float) -> Bucket:
        bucket = host.buckets[key] = Bucket(key)
        bucket.probe(now_us)
        _forget(host.buckets, MAX_ROUTES, lambda each: not each.waiting)
        _forget(host.buckets, 0, lambda each: each is not bucket and each.is_idle(now_us))
        return bucket

    def _recognise(self, host: Host, profile_name: str) -> None:
        """The answers are those of an API: from now on, routes are told apart as its profile says."""
        if profile_name != host.profile.name:
            host.shared = ()
            host.profile = next((each for each in self._profile.candidates if each.name == profile_name), host.profile)


def _forget(items: OrderedDict[str, T], most: int, is_forgotten: Callable[[T], bool]) -> None:
    """Forget the oldest items above ``most``, a few at a time; those that may not be become the newest."""
    for key in [key for _, key in zip(range(4), items)] if len(items) > most else ():
        if is_forgotten(items[key]):
            del items[key]
        elif most:
            items.move_to_end(key)
