"""Which requests may go, according to the answers of their servers: a model without a timer, a task or a lock.

Its methods are the events: a request comes, is sent, has its answer or fails, or leaves. Each of them takes the time.
For each request that waits, the model sets when it tries again (``Call.wake``). ``route_queues`` says why none of them
waits forever.

Times are microseconds. No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ...headers import ServerLimit, ServerLimits
from ...hooks import ChangeKind
from ...profiles import Profile
from ...quotas import SECOND_US
from .hidden import HiddenBucket, Outcome
from .hosts import Hosts
from .queued_requests import Call, Host, LearnedLimit, Record, Route
from .route_queues import join, leave, release, wait_elsewhere
from .server_buckets import LEAST, Bucket, PioneerBucket, ProbedBucket, ReportedBucket

MAX_MISSES = 3
"""A bucket that the answers to this many pioneers in a row do not report no longer belongs to their route."""

SERVER_ERROR = 500

OnChange = Callable[[str, Bucket, ChangeKind, str], None]
"""Called with a host, a bucket, and a change: its kind, and a text."""


class Model:
    """Everything that is known about all hosts. ``on_change`` is called when a limit is learned, or a pause begins."""

    def __init__(self, profile: Profile, on_change: OnChange) -> None:
        self.hosts = Hosts(profile)
        self._profile = profile
        self._on_change = on_change

    def call(self, host_name: str, method: str, path: str, deadline_us: float, now_us: float) -> Call:
        """A request that is to be sent."""
        host = self.hosts.host(host_name, now_us)
        route = self.hosts.route(host, method, path, now_us)
        return Call(host, route, path, deadline_us, deadline_us)

    def ask(self, call: Call, now_us: float, *, is_first: bool = False) -> None:
        """Admit a request, or let it wait; one that ``is_first`` before all others of its route."""
        call.route.used_us = now_us
        call.is_admitted = False
        join(call, now_us, is_first=is_first)

    def again(self, call: Call, now_us: float) -> None:
        """Let an admitted request wait again, before all others of its route."""
        self.left(call, now_us)
        self.ask(call, now_us, is_first=True)

    def adopt(self, call: Call, record: Record, now_us: float) -> None:
        """Go on with what another process has learned of the route of a request, as if an answer had reported it."""
        host, route = call.host, call.route
        self.hosts.recognise(host, record.profile)
        buckets = tuple([self._adopted(host, limit, now_us) for limit in record.limits])
        if record.is_of_all:
            host.shared = buckets
        self._know(host, route, buckets, True)
        route.section.record, route.section.recorded_us = record, now_us
        pioneer_buckets = [
            route.pioneer_bucket,
            route.section.pioneer_bucket,
            *([host.everything] if host.everything.epoch == 1 else []),
        ]
        for pioneer_bucket in pioneer_buckets:
            pioneer_bucket.open(pioneer_bucket.epoch)
            pioneer_bucket.hold(0.0)
        wait_elsewhere(host, route, now_us)
        for pioneer_bucket in pioneer_buckets:
            release(host, pioneer_bucket, now_us)

    def not_before(self, call: Call, now_us: float) -> float:
        """A time before which no request of a call's route may go, whatever answers come."""
        return max(bucket.not_before(now_us) for bucket in call.route.needed(call.host))

    def ready_at(self, call: Call, now_us: float) -> float:
        """The latest time at which the first request of a call's route may go, as far as is known."""
        return max(bucket.ready_at(now_us) for bucket in call.route.needed(call.host))

    def woke(self, call: Call, now_us: float) -> None:
        """Check whether a waiting request, or any that wait for the same bucket, may go."""
        if call in call.route.queue and call.route.waits_for is not None:
            call.wake(math.inf)
            release(call.host, call.route.waits_for, now_us)

    def left(self, call: Call, now_us: float) -> None:
        """Note that a request will not be sent: it waited too long, or was cancelled, or is admitted but not sent."""
        if call.is_admitted:
            for bucket, number in call.admitted:
                bucket.withdraw(number)
            self._end(call, now_us)
        else:
            leave(call, now_us)

    def sends(self, call: Call, now_us: float) -> bool:
        """Whether an admitted request is sent now; if it may not go because a pause has begun, it waits again."""
        sent = []
        for bucket, number in call.admitted:
            if bucket.holds_up(number, now_us):
                self.again(call, now_us)
                return False
        for bucket, _ in call.admitted:
            sent.append((bucket, bucket.send(now_us)))  # a comprehension is a call of its own in Python 3.11
        call.admitted, call.is_sent, call.sent_us = sent, True, now_us
        for bucket, _ in sent:
            if bucket.waiting and isinstance(bucket, ReportedBucket) and bucket.stored.left < math.inf:
                release(call.host, bucket, now_us)  # others may have waited for the store's decision
        return True

    def died(self, call: Call, now_us: float) -> None:
        """Note that a request has failed, and that no answer will come."""
        self._pioneer_failed(call, "no answer")
        for bucket, number in call.admitted:
            bucket.end(number, now_us)
        self._end(call, now_us)

    def answered(self, call: Call, status: int, report: ServerLimits, now_us: float) -> tuple[ProbedBucket, ...]:
        """Learn from an answer, which reports these limits of the server; return the buckets that it pauses."""
        host, route = call.host, call.route
        if host.hidden:
            self._judge(call, status, report, now_us)
        for bucket, number in call.admitted:
            bucket.end(number, now_us)
        self.hosts.recognise(host, report.profile)
        limits = [limit for limit in report.limits if limit.remaining is not None]
        reported = self._learn(call, limits, report.is_throttled, now_us)
        is_failed = not limits and not report.is_throttled and status >= SERVER_ERROR
        if is_failed:
            self._pioneer_failed(call, f"an answer {status} that reports no limit")
        for bucket, epoch in call.probed():
            if isinstance(bucket, PioneerBucket):
                bucket.miss(now_us) if is_failed else bucket.open(epoch)
            elif bucket not in reported and epoch == bucket.epoch:
                self._miss(route, bucket, status, now_us)
        if limits and not host.has_routes and all(limit.bucket is None for limit in limits):
            host.shared = reported
        self._know(host, route, reported, status < SERVER_ERROR and not report.is_throttled)
        paused: tuple[ProbedBucket, ...] = ()
        if report.is_throttled:
            paused = self._refuse(call, report, reported, now_us)
        else:
            for bucket in (host.everything, route.pioneer_bucket, *reported):
                bucket.refusals = 0
        self._count_bad(host, status, report, now_us)
        self._end(call, now_us, *reported)
        wait_elsewhere(host, route, now_us)
        return paused

    def _pioneer_failed(self, call: Call, why: str) -> None:
        pioneer_bucket = next(
            (bucket for bucket, epoch in call.probed() if bucket.is_probed and epoch == bucket.epoch), None
        )
        if pioneer_bucket is not None:
            self._on_change(call.host.name, pioneer_bucket, "pioneer failed", f"{why}, so another request goes first")

    def _know(self, host: Host, route: Route, reported: tuple[ReportedBucket, ...], is_served: bool) -> None:
        """Set the buckets of a route to those that its last answer has reported, if any."""
        if reported != route.buckets and reported and route.buckets and set(reported) != set(route.buckets):
            names = " and ".join(bucket.name for bucket in route.buckets)
            self._on_change(host.name, reported[0], "migrated", f"{route.key} uses this instead of {names}")
        if reported:
            route.buckets, route.section.buckets, route.is_known = reported, reported, True
        elif is_served:
            route.is_known = True

    def _learn(
        self, call: Call, limits: list[ServerLimit], is_refused: bool, now_us: float
    ) -> tuple[ReportedBucket, ...]:
        """Learn what an answer reports; return the buckets that it is about."""
        epochs = dict(call.probed())
        reported: dict[ReportedBucket, None] = {}
        for limit in limits:
            bucket = self.hosts.bucket(call, limit, now_us)
            before = bucket.limit
            epoch = epochs.get(bucket, bucket.epoch)
            bucket.learn(limit, epoch, now_us, sent_us=call.sent_us, is_refused=is_refused)
            reported[bucket] = None
            if bucket.limit != before:
                self._limit_changed(call.host, bucket, before, now_us)
        return tuple(reported)

    def _limit_changed(self, host: Host, bucket: ReportedBucket, before: float, now_us: float) -> None:
        if before == math.inf:
            left = max(bucket.available, 0.0)
            more_us = bucket.more_at(now_us) - now_us
            more = f", more in {more_us / SECOND_US:.3g} s" if more_us > 0.0 else ""
            text = f"limit {bucket.limit:g}, {left:g} left{more}"
            self._on_change(host.name, bucket, "learned", text)
        else:
            self._on_change(host.name, bucket, "limit changed", f"limit {bucket.limit:g}, it was {before:g}")

    def _refuse(
        self, call: Call, report: ServerLimits, reported: tuple[ReportedBucket, ...], now_us: float
    ) -> tuple[ProbedBucket, ...]:
        """Pause what a refusal is about: everything, the exhausted buckets, all that it names, or the whole server."""
        host = call.host
        exhausted = tuple(bucket for bucket in reported if bucket.available < max(bucket.size.cost, LEAST))
        paused: tuple[ProbedBucket, ...] = exhausted or reported or (call.route.pioneer_bucket,)
        if report.covers_all or report.scope == "cloudflare" or not (reported or host.has_routes):
            paused = (host.everything,)
        wait_us = None if report.retry_after is None else math.ceil(report.retry_after * SECOND_US)
        if wait_us is None and host.hidden and not exhausted and not any(each.is_closed for each in host.hidden):
            return ()
        for bucket in paused:
            bucket.refuse(now_us, wait_us)
            seconds = bucket.paused_us(now_us) / SECOND_US
            self._on_change(host.name, bucket, "paused", f"refused, paused for {seconds:.3g} s")
        return paused

    def _judge(self, call: Call, status: int, report: ServerLimits, now_us: float) -> None:
        """Let the hidden limits, which no answer reports, learn from an answer."""
        is_hidden = report.is_throttled and all(
            limit.remaining is None or limit.remaining >= 1.0 for limit in report.limits
        )
        outcome = Outcome(status, report.is_throttled, is_hidden, (report.retry_after or 0.0) * SECOND_US)
        for bucket, number in call.admitted:
            change = bucket.judge(number, outcome, now_us) if isinstance(bucket, HiddenBucket) else ""
            if change:
                self._on_change(call.host.name, bucket, "limit changed", change)

    def _count_bad(self, host: Host, status: int, report: ServerLimits, now_us: float) -> None:
        ban = host.profile.ban
        if ban is None or status not in ban.statuses or report.scope in ban.uncounted:
            return
        wait_us = host.bad.add(ban, now_us)
        if wait_us is not None:
            host.everything.pause(now_us + wait_us)
            text = f"{host.bad.count} answers of {ban.count} that lead to a ban, paused for {wait_us / SECOND_US:.3g} s"
            self._on_change(host.name, host.everything, "paused", text)

    def _miss(self, route: Route, bucket: ProbedBucket, status: int, now_us: float) -> None:
        bucket.miss(now_us)
        if bucket.misses >= MAX_MISSES and status < SERVER_ERROR:
            route.buckets = tuple(each for each in route.buckets if each is not bucket)
            section = route.section
            section.buckets = tuple(each for each in section.buckets if each is not bucket)

    def _end(self, call: Call, now_us: float, *others: Bucket) -> None:
        """Let others go, now that a call has ended."""
        admitted, call.admitted, call.is_admitted, call.is_sent = call.admitted, [], False, False
        for bucket, _ in admitted:
            if bucket.waiting:
                release(call.host, bucket, now_us)
        for bucket in others:
            if bucket.waiting:
                release(call.host, bucket, now_us)

    def _adopted(self, host: Host, limit: LearnedLimit, now_us: float) -> ReportedBucket:
        bucket = self.hosts.named(host, limit.name, now_us)
        before = bucket.limit
        bucket.adopt(limit.limit, limit.cost, limit.rate, now_us)
        if bucket.limit != before:
            self._limit_changed(host, bucket, before, now_us)
        return bucket
