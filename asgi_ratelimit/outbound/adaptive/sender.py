"""How a request is sent when the limits of its server allow it, in a task or in a thread."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from threading import RLock
from typing import Any

from ...clock import SystemClock
from ...decision import Charge, Decision, QuotaState, Take
from ...headers import ServerLimits, parse
from ...limiter import Limiter
from ...profiles import Profile
from ...quotas import SECOND_US, TokenBucket
from ...waiting import Flow, PaceTimeout, SlotWaiter, pace_timeout
from ...waiting.drivers import NewWakeUp, Sleep
from ...waiting.forks import reset_in_child
from ..sending.exchange import Discard, Send
from ..sending.pauses import Pauses
from .bodies import BodyRule, ReadBody
from .bucket import Bucket
from .calls import Call
from .model import Model
from .state import LearnedBucket, learned_buckets

NAME = "adaptive"
"""The name of the limiter whose buckets hold declared quotas and pauses."""

LONGEST_S = 86_400.0
"""The longest time, in seconds, that is learned from an answer."""

LEARNED = TokenBucket(1, 1, name="learned")
"""Stands for the limit of a server in the decision of a ``PaceTimeout``."""

LONGEST_KEY = 250
"""Characters of the key of a pause in the store."""

logger = logging.getLogger("asgi_ratelimit")


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
    ) -> None:
        self._transport = transport
        self._profile = profile
        self._slots = slots
        self._limiter = limiter
        self._retries = retries
        self._longest_s = longest_s
        self._bodies = BodyRule(profile)
        self.now_us = slots.now_us
        self._pauses = Pauses(slots.store, NAME, slots.now_us)
        self.reset()
        reset_in_child(self)

    def reset(self) -> None:
        """Forget all that was learned, and all requests."""
        self._lock = RLock()  # the garbage collector may close a forgotten request, and so call the model, in here
        self.model = Model(self._profile, _log)

    def send(self, request: Any) -> Flow[Any]:
        """Send a request, perhaps several times, and return its answer."""
        started_us = self.now_us()
        call = self._call(request, started_us)
        attempts, waited_us = 0, 0.0
        while True:
            asked_us = self.now_us()
            yield from self._wait(call, is_first=attempts > 0)
            waited_us += self.now_us() - asked_us
            attempts += 1
            response, is_refused = yield from self._exchange(call, request)
            if not (is_refused and attempts <= self._retries and self._may_be_sent_again(call, request)):
                sent = {"waited": waited_us / SECOND_US, "attempts": attempts}
                response.extensions = {**response.extensions, "pace": sent}
                return response
            yield Discard(response)

    def state(self) -> tuple[LearnedBucket, ...]:
        """What was learned, and who waits."""
        with self._lock:
            return tuple(learned_buckets(self.model.hosts.values(), self.now_us()))

    def _may_be_sent_again(self, call: Call, request: Any) -> bool:
        """Whether the whole body is at hand, and its turn can come in time."""
        if not (hasattr(request.stream, "__iter__") and hasattr(request.stream, "__aiter__")):
            return False
        with self._lock:
            return self.model.not_before(call, self.now_us()) <= call.deadline_us

    def _call(self, request: Any, now_us: float) -> Call:
        url = request.url
        path: str = url.path
        name = url.host if url.port is None else f"{url.host}:{url.port}"
        with self._lock:
            return self.model.call(name, request.method, path, now_us + self._longest_s * SECOND_US, now_us)

    def _wait(self, call: Call, *, is_first: bool) -> Flow[None]:
        """Wait until the limits of the server, as far as they are known, and the declared quota allow one request."""
        with self._lock:
            self.model.ask(call, self.now_us(), is_first=is_first)
        try:
            while True:
                yield from self._wait_until_admitted(call)
                if self._limiter is not None:
                    yield from self._slots.wait(self._take(self._limiter, call))
                lefts_us = yield from self._pauses.each_left_us([_key(call, bucket) for bucket, _ in call.admitted])
                with self._lock:
                    now_us = self.now_us()
                    self._observe(call, lefts_us, now_us)
                    if self.model.sends(call, now_us):
                        return
        except BaseException:
            with self._lock:
                self.model.left(call, self.now_us())
            raise

    def _observe(self, call: Call, lefts_us: Sequence[float], now_us: float) -> None:
        """Pause the buckets of a call that another transport has paused in the store."""
        for (bucket, _), left_us in zip(call.admitted, lefts_us):
            if left_us > 0.0:
                bucket.pause(now_us + left_us)

    def _wait_until_admitted(self, call: Call) -> Flow[None]:
        if call.is_admitted:
            return
        if call.wake_up is None:
            wake_up = yield NewWakeUp(self._slots.clock)
            with self._lock:
                call.wake_up = wake_up
                wake_up.set(call.at_us)
        while True:
            with self._lock:
                now_us = self.now_us()
                self.model.woke(call, now_us)
                if call.is_admitted:
                    return
                is_too_late = max(self.model.not_before(call, now_us), now_us + 1) > call.deadline_us
                ready_us = self.model.ready_at(call, now_us)
            if is_too_late:
                raise self._too_late(call, max(ready_us, call.deadline_us + 1))
            yield Sleep(call.wake_up)

    def _exchange(self, call: Call, request: Any) -> Flow[tuple[Any, bool]]:
        """Send a request, and learn from its answer; returns that, and whether it is a refusal."""
        response = None
        try:
            response = yield Send(self._transport, request)
            body = None
            if self._bodies.wants(response):
                body = yield ReadBody(response)
            said = self._said(response, body)
        except GeneratorExit:
            self._died(call)
            raise
        except BaseException:
            self._died(call)
            if response is not None:
                yield Discard(response, read=False)
            raise
        with self._lock:
            now_us = self.now_us()
            paused = self.model.answered(call, response.status_code, said, now_us)
            pauses = [(_key(call, bucket), bucket.paused_until_us - now_us) for bucket in paused]
        try:
            for key, left_us in pauses:
                yield from self._pauses.begin(key, left_us / SECOND_US)
        except GeneratorExit:
            raise
        except BaseException:
            yield Discard(response, read=False)
            raise
        return response, said.is_throttled

    def _died(self, call: Call) -> None:
        with self._lock:
            self.model.died(call, self.now_us())

    def _said(self, response: Any, body: Any) -> ServerLimits:
        clock = self._slots.clock or SystemClock()
        now = clock.now_us() / SECOND_US
        headers = response.headers
        return parse(response.status_code, headers, profile=self._profile, body=body, now=now, max_delay=LONGEST_S)

    def _take(self, limiter: Limiter, call: Call) -> Take:
        left_s = max(call.deadline_us - self.now_us(), 0.0) / SECOND_US
        charges = tuple(Charge(quota, call.host.name, 1, limiter.name) for quota in limiter.quotas)
        return Take(charges, left_s)

    def _too_late(self, call: Call, ready_us: float) -> PaceTimeout:
        wait_s = (ready_us - self.now_us()) / SECOND_US
        take = Take((Charge(LEARNED, call.host.name),), self._longest_s)
        retry_after = max((ready_us - call.deadline_us) / SECOND_US, 0.0)
        state = QuotaState(LEARNED, False, 0, wait_s, wait_s)
        ready_at = (self._slots.clock or SystemClock()).now_us() / SECOND_US + wait_s
        return pace_timeout(
            take, Decision(False, 0, 0.0, retry_after, 0, wait_s, ready_at, LEARNED, (state,), take=take)
        )


def _key(call: Call, bucket: Bucket) -> str:
    """The key of a bucket's pause in the store."""
    return f"{call.host.name} {bucket.name}"[:LONGEST_KEY]


def _log(host: str, bucket: Bucket, change: str) -> None:
    logger.info("%s: %s: %s", host, bucket.name, change)
