"""Sends a request when the limits of its server allow it, in a task or in a thread."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...algorithms import TokenBucketState
from ...clock import SystemClock
from ...decision import Charge, Decision, Take
from ...headers import ServerLimits, parse
from ...hooks import ChangeHook
from ...limiter import Limiter
from ...profiles import Profile
from ...quotas import SECOND_US, TokenBucket
from ...waiting import Flow, PaceTimeout, SlotWaiter, pace_timeout
from ...waiting.flow_drivers import NewWakeUp, Sleep
from ..sending.exchange import Discard, Send, can_be_sent_again
from .admission import NAME, LockedModel, admission_over
from .learned_changes import Changes
from .learned_state import LearnedBucket, learned_buckets
from .limit_bodies import BodyRule, ReadBody
from .queued_requests import Call

LONGEST_S = 86_400.0
"""The longest time, in seconds, that is learned from an answer."""

LEARNED = TokenBucket(1, 1, name="learned")
"""Stands for the limit of a server in the decision of a ``PaceTimeout``."""


class AdaptiveSender:
    """Sends the requests of one transport when their servers allow it; ``limiter`` has the declared quota, if any."""

    def __init__(
        self,
        transport: Any,
        profile: Profile,
        slots: SlotWaiter,
        limiter: Limiter | None,
        retries: int,
        longest_s: float,
        hooks: Iterable[ChangeHook],
    ) -> None:
        self._transport = transport
        self._profile = profile
        self._slots = slots
        self._retries = retries
        self._longest_s = longest_s
        self._bodies = BodyRule(profile)
        self.now_us = slots.now_us
        self._locked = LockedModel(profile, Changes(hooks, slots.now_us))
        self._admission = admission_over(self._locked, slots, limiter)

    def send(self, request: Any) -> Flow[Any]:
        """Send a request, perhaps several times, and return its answer."""
        call = self._call(request, self.now_us())
        attempts, waited_us = 0, 0.0
        while True:
            since_us = self.now_us()
            yield from self._wait(call, is_first=attempts > 0)
            waited_us += self.now_us() - since_us
            attempts += 1
            response, is_refused = yield from self._exchange(call, request)
            if not (is_refused and attempts <= self._retries and self._may_be_sent_again(call, request)):
                sent = {"waited": waited_us / SECOND_US, "attempts": attempts}
                response.extensions = {**response.extensions, "pace": sent}
                return response
            yield Discard(response)

    def state(self) -> tuple[LearnedBucket, ...]:
        """The buckets that were learned, and who waits for them."""
        with self._locked as model:
            return tuple(learned_buckets(model.hosts, self.now_us()))

    def _may_be_sent_again(self, call: Call, request: Any) -> bool:
        """Whether the whole body is at hand, and its turn can come in time."""
        if not can_be_sent_again(request):
            return False
        with self._locked as model:
            return model.not_before(call, self.now_us()) <= call.deadline_us

    def _call(self, request: Any, now_us: float) -> Call:
        url = request.url
        path: str = url.path
        name = url.host if url.port is None else f"{url.host}:{url.port}"
        with self._locked as model:
            return model.call(name, request.method, path, now_us + self._longest_s * SECOND_US, now_us)

    def _wait(self, call: Call, *, is_first: bool) -> Flow[None]:
        """Wait until the limits of the server, as far as they are known, and the declared quota allow one request."""
        with self._locked as model:
            model.ask(call, self.now_us(), is_first=is_first)
        try:
            while True:
                yield from self._wait_until_admitted(call)
                if (yield from self._admission.enter(call)):
                    return
        except BaseException as error:
            with self._locked as model:
                model.left(call, self.now_us())
            if not isinstance(error, GeneratorExit):
                yield from self._admission.leave(call)
            raise

    def _wait_until_admitted(self, call: Call) -> Flow[None]:
        if call.is_admitted:
            return
        if call.wake_up is None:
            wake_up = yield NewWakeUp(self._slots.clock)
            with self._locked:
                call.wake_up = wake_up
                wake_up.set(call.at_us)
        while True:
            with self._locked as model:
                now_us = self.now_us()
                model.woke(call, now_us)
                if call.is_admitted:
                    return
                is_too_late = max(model.not_before(call, now_us), now_us + 1) > call.deadline_us
                ready_us = model.ready_at(call, now_us)
            if is_too_late:
                raise self._too_late(call, max(ready_us, call.deadline_us + 1))
            yield Sleep(call.wake_up)

    def _exchange(self, call: Call, request: Any) -> Flow[tuple[Any, bool]]:
        """Send a request, and learn from its answer; return the answer, and whether it is a refusal."""
        response = None
        try:
            response = yield Send(self._transport, request)
            body = None
            if self._bodies.wants(response):
                body = yield ReadBody(response)
            report = self._report_of(response, body)
        except GeneratorExit:
            self._died(call)
            raise
        except BaseException:
            self._died(call)
            yield from self._admission.died(call)
            if response is not None:
                yield Discard(response, read=False)
            raise
        with self._locked as model:
            paused = model.answered(call, response.status_code, report, self.now_us())
        try:
            yield from self._admission.answered(call, paused)
        except GeneratorExit:
            raise
        except BaseException:
            yield Discard(response, read=False)
            raise
        return response, report.is_throttled

    def _died(self, call: Call) -> None:
        with self._locked as model:
            model.died(call, self.now_us())

    def _report_of(self, response: Any, body: Any) -> ServerLimits:
        clock = self._slots.clock or SystemClock()
        now = clock.now_us() / SECOND_US
        headers = response.headers
        return parse(response.status_code, headers, profile=self._profile, body=body, now=now, max_delay=LONGEST_S)

    def _too_late(self, call: Call, ready_us: float) -> PaceTimeout:
        now_us = float((self._slots.clock or SystemClock()).now_us())
        take = Take((Charge(LEARNED, call.host.name, name=NAME),), self._longest_s)
        wait_us = take.max_wait_us + max(ready_us - call.deadline_us, 0.0)
        state = TokenBucketState(LEARNED.burst + (ready_us - self.now_us()) * LEARNED.rate, now_us, now_us, 0.0)
        return pace_timeout(take, Decision(take, False, wait_us, [state], now_us))
