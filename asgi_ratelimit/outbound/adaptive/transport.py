"""``AdaptiveTransport``: requests of httpx and httpx2 that keep to the limits that their servers report."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

from ...algorithms.token_bucket import TokenBucketState
from ...clock import SystemClock
from ...counts import MOST_ROWS, counts_of
from ...decision import Charge, Decision, Take, max_wait_of
from ...errors import shows_use
from ...headers import MAX_DELAY, parse
from ...hooks import ChangeHook, ChangeKind, Hooks, LimitChange
from ...logs import logger
from ...profiles import Profile, named
from ...quota_text import QuotaLike
from ...quotas import SECOND_US, TokenBucket
from ...stores import Store, as_store
from ...waiting.drivers import Flow, WakeUp
from ...waiting.waiter import PaceTimeout, SlotWaiter, outbound_sources, pace_timeout
from ..exchange import SMALL_BODY, Discard, ReadBody, Send, can_be_sent_again, json_of
from ..outbound_limiter import reads_with_margin
from ..wrapping_transport import WrappingTransport, require_count
from .learned_buckets import LONGEST_S, Bucket, PioneerBucket, known
from .model import EVERYTHING, Call, Host, Model
from .shared import NAME, Admission, LockedModel

OK = 200

# Stands for the limit of a server in the decision of a ``PaceTimeout``.
LEARNED = TokenBucket(1, 1, name="learned")


class AdaptiveTransport(WrappingTransport):
    """A transport for httpx and httpx2, with and without ``async``, that learns the limits of each server it talks to.

    The first request to an unknown bucket goes alone. The others wait for its answer. Then as many go at once as there
    are units left, and the rest when there are more. ``profile`` says how to read the answers; by default, it is
    recognised. After a refusal, all requests of its bucket wait, and the refused request is sent again, at most
    ``retries`` times, if its whole body is at hand.

    ``quota`` is the most that each host gets, whatever its answers say. Processes that share a ``RedisStore`` share the
    quota, the remaining units of each bucket, and pauses; only one request of all of them goes first to an unknown
    bucket. ``max_delay`` is the longest total wait of a request in seconds, 900 by default; ``PaceTimeout`` is raised
    at once if that is certainly too short. ``hooks`` are functions that are called with each ``LimitChange``.

    An answer reports in ``extensions["pace"]`` how many seconds it ``waited`` and how many ``attempts`` it took.
    Raises ``QuotaError`` and ``ConfigurationError``.
    """

    @shows_use('AdaptiveTransport(httpx.AsyncHTTPTransport(), quota="50/s")')
    def __init__(
        self,
        transport: Any,
        *,
        profile: Profile | str = "auto",
        quota: QuotaLike | None = None,
        store: Store | str | None = None,
        retries: int = 1,
        max_delay: float | None = None,
        hooks: Iterable[ChangeHook] = (),
    ) -> None:
        self._wrap(transport, "AdaptiveTransport({})")
        require_count("retries", retries, 0)
        self._longest_s = MAX_DELAY if max_delay is None else max_wait_of(max_delay)
        self._profile = named(profile)
        self._owns_store = store is None or isinstance(store, str)
        self._store = as_store(store)
        quota = self._profile.quota if quota is None else quota
        quotas = () if quota is None else reads_with_margin(0.0)(quota)
        self._slots = slots = SlotWaiter(self._store)
        self._now_us, self._clock = slots.now_us, slots.clock or SystemClock()
        self._retries = retries
        self._reads_all_bodies, self._refusing = _reports_in_bodies(self._profile), _refusing(self._profile)
        self._hooks = Hooks(hooks, "a LimitChange")
        report = partial(_report, self._hooks, slots.now_us)
        new_model = partial(Model, self._profile, report, has_quota=bool(quotas))
        self._locked = LockedModel(new_model)
        self._admission = Admission(self._locked, slots, quotas)
        outbound_sources[self] = None
        counts_of(self._store)  # they publish its rows

    def __repr__(self) -> str:
        return f"AdaptiveTransport({self._transport!r}, profile={self._profile.name!r})"

    def state(self) -> tuple[LearnedBucket, ...]:
        """The buckets that were learned: the units left, how many requests wait for each, and for how long."""
        return self._first_buckets(None)

    def _first_buckets(self, most: int | None) -> tuple[LearnedBucket, ...]:
        with self._locked as model:
            return tuple(islice(_learned_buckets(model.hosts.values(), self._now_us()), most))

    def outbound_rows(self) -> Iterator[dict[str, Any]]:
        """The rows that are published: one for each of the first buckets, of which a server may invent many."""
        for bucket in self._first_buckets(MOST_ROWS):
            names = ("host", "name", "limit", "remaining", "under_way", "waiting")
            yield {**{name: getattr(bucket, name) for name in names}, "paused_for": round(bucket.paused_for)}

    def _send(self, request: Any) -> Flow[Any]:
        """Send a request, perhaps several times, and return its answer."""
        url, now_us = request.url, self._now_us()
        name = url.host if url.port is None else f"{url.host}:{url.port}"
        with self._locked as model:
            call = model.call(name, request.method, url.path, now_us + self._longest_s * SECOND_US, now_us)
            model.begin(call, WakeUp(self._slots.clock, call.deadline_us), now_us)
        attempts, waited_us = 0, 0.0
        while True:
            since_us = self._now_us()
            yield from self._wait(call, is_first=attempts > 0)
            waited_us += self._now_us() - since_us
            attempts += 1
            response, is_refused = yield from self._exchange(call, request)
            if not (is_refused and attempts <= self._retries and self._may_be_sent_again(call, request)):
                sent = {"waited": waited_us / SECOND_US, "attempts": attempts}
                response.extensions = {**response.extensions, "pace": sent}
                return response
            yield Discard(response)

    def _may_be_sent_again(self, call: Call, request: Any) -> bool:
        """Whether the whole body is at hand, and its turn can come in time."""
        if not can_be_sent_again(request):
            return False
        with self._locked as model:
            return model.not_before(call, self._now_us()) <= call.deadline_us

    def _wait(self, call: Call, *, is_first: bool) -> Flow[None]:
        """Wait until the limits of the server, as far as they are known, and the declared quota allow one request."""
        with self._locked as model:
            model.ask(call, self._now_us(), is_first=is_first)
            ahead = 0 if is_first else len(call.route.queue)
            call.soonest_us = self._now_us() + self._admission.least_wait_us(call, ahead)
        try:
            while True:
                yield from self._wait_until_admitted(call)
                if (yield from self._admission.enter(call)):
                    return
        except BaseException as error:
            with self._locked as model:
                model.left(call, self._now_us())
            if not isinstance(error, GeneratorExit):
                yield from self._admission.leave(call)
            raise

    def _wait_until_admitted(self, call: Call) -> Flow[None]:
        while not call.is_admitted:
            with self._locked as model:
                now_us = self._now_us()
                model.woke(call, now_us)
                is_too_late = max(model.not_before(call, now_us), call.soonest_us, now_us + 1) > call.deadline_us
                ready_us = max(model.ready_at(call, now_us), call.soonest_us)
            if is_too_late and not call.is_admitted:
                raise self._too_late(call, max(ready_us, call.deadline_us + 1))
            if not call.is_admitted:
                yield call.wake_up

    def _exchange(self, call: Call, request: Any) -> Flow[tuple[Any, bool]]:
        """Send a request, and learn from its answer; return that, and whether it is a refusal.

        What the headers say counts also if the body breaks off.
        """
        response = body = None
        try:
            response = yield Send(self._transport, request)
            if self._may_report_in_body(response):
                is_read = response.is_closed  # by the wrapped transport, so its stream has nothing more
                body = json_of(response.content) if is_read else (yield ReadBody(response, self._now_us))
            status, headers, now = response.status_code, response.headers, self._clock.now_us() / SECOND_US
            report = parse(status, headers, profile=self._profile, body=body, now=now, max_delay=LONGEST_S)
            with self._locked as model:
                paused = model.answered(call, status, report, self._now_us())
            yield from self._admission.answered(call, paused)
        except BaseException as error:
            with self._locked as model:
                if call.is_sent:
                    model.died(call, self._now_us())
            if not isinstance(error, GeneratorExit):
                yield from self._admission.died(call)
                if response is not None:
                    yield Discard(response)
            raise
        return response, report.is_throttled

    def _may_report_in_body(self, response: Any) -> bool:
        """Whether the body of an answer may say something about limits, and is short enough to be read for them."""
        if not self._reads_all_bodies and response.status_code not in self._refusing:
            return False
        length = response.headers.get("content-length", "0")
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        is_json = kind.endswith(("/json", "+json")) and "stream" not in kind  # nobody waits for the end of a stream
        return is_json and length.isdecimal() and int(length) <= SMALL_BODY

    def _too_late(self, call: Call, ready_us: float) -> PaceTimeout:
        now_us = float(self._clock.now_us())
        take = Take((Charge(LEARNED, call.host.name, name=NAME),), self._longest_s)
        wait_us = take.max_wait_us + max(ready_us - call.deadline_us, 0.0)
        state = TokenBucketState(LEARNED.burst + (ready_us - self._now_us()) * LEARNED.rate, now_us, now_us, 0.0)
        return pace_timeout(take, Decision(take, False, wait_us, [state], now_us))


def _reports_in_bodies(profile: Profile) -> bool:
    """Whether the bodies of all answers may report limits."""
    sources = [source for limit in profile.limits for source in limit.sources()]
    return any(isinstance(source, str) and source.startswith("body:") for source in sources)


def _refusing(profile: Profile) -> set[int]:
    """The statuses of answers that may refuse; only a profile that is named reads those that look like successes."""
    candidates = {status for each in profile.candidates for refusal in each.refusals for status in refusal.statuses}
    return {status for refusal in profile.refusals for status in refusal.statuses} | (candidates - {OK})


def _report(hooks: Hooks, now_us: Callable[[], float], host: str, bucket: Bucket, kind: ChangeKind, text: str) -> None:
    """Log a change, and call hooks with it."""
    is_serious = kind == "paused" and bucket.name == EVERYTHING
    logger.log(logging.WARNING if is_serious else logging.INFO, "%s: %s: %s", host, bucket.name, text)
    paused_for = bucket.paused_us(now_us()) / SECOND_US
    hooks(LimitChange(host, bucket.name, kind, text, known(bucket.limit), bucket.remaining, paused_for))


@dataclass(frozen=True, slots=True)
class LearnedBucket:
    """A bucket of a ``host``, as its answers report it; times are in seconds.

    * ``limit`` and ``remaining`` are units, or ``None`` if they are not known; ``under_way`` is the number of requests.
    * ``waiting`` is how many requests wait for it, and ``next_release`` when the next of them may go at the latest.
    * ``is_unknown``: one request goes first, to find out.
    """

    host: str
    name: str
    limit: float | None
    remaining: float | None
    under_way: int
    waiting: int
    next_release: float
    paused_for: float
    is_unknown: bool


def _learned_buckets(hosts: Iterable[Host], now_us: float) -> Iterator[LearnedBucket]:
    """All buckets of all hosts, except those that neither limit nor hold up anyone."""
    for host in hosts:
        pioneers = dict.fromkeys(route.section.pioneer for route in host.routes.values())
        for bucket in (host.everything, *host.quota, *host.hidden, *pioneers, *host.buckets.values()):
            units = known(bucket.limit), bucket.remaining, bucket.under_way
            waiting = sum(len(route.queue) for route in bucket.waiting)
            times = (bucket.ready_at(now_us) - now_us) / SECOND_US, bucket.paused_us(now_us) / SECOND_US
            is_unknown = isinstance(bucket, PioneerBucket) and bucket.is_probed
            learned = LearnedBucket(host.name, bucket.name, *units, waiting, *times, is_unknown)
            if learned.limit is not None or learned.waiting or learned.paused_for or learned.is_unknown:
                yield learned
