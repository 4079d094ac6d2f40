"""How one request is sent: wait for a place, a slot and the end of pauses, send it, and perhaps send it again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ..clock import SystemClock
from ..decision import Decision, Take
from ..limiter import Limiter
from ..quotas import SECOND_US
from ..waiting import CallStore, ConcurrencyLimit, Flow, SlotWaiter, as_refused, pace_timeout, sleep
from .pauses import Pauses
from .retry_after import THROTTLED, pause_of

FIRST_BACKOFF_US = 500_000.0
"""The first back-off after a refusal without a time to come back; each further one is twice as long."""

SMALL_BODY = 65_536
"""Bytes of an unwanted body that are read to keep its connection; a larger body costs the connection."""


@dataclass(slots=True)
class PacedRequest:
    """A request, its take, and its deadline in microseconds of the waiter's clock."""

    request: Any
    take: Take
    deadline_us: float

    @property
    def key(self) -> str:
        """The key whose concurrency and pauses apply: that of its first charge."""
        return self.take.charges[0].key

    @property
    def can_be_sent_again(self) -> bool:
        """Whether the whole body is at hand. Only then can it be read twice, with and without ``async``."""
        stream = self.request.stream
        return hasattr(stream, "__iter__") and hasattr(stream, "__aiter__")


@dataclass(slots=True)
class SentRequest:
    """A request that was sent: the answer, how often it was sent, and for how many seconds it waited before."""

    response: Any
    attempts: int
    waited: float


class Sender:
    """Sends the requests of one transport, at most ``concurrency`` of each key at a time."""

    def __init__(self, transport: Any, limiter: Limiter, concurrency: int | None, retries: int) -> None:
        self.waiter = SlotWaiter(limiter.store)
        self._transport = transport
        self._concurrency = None if concurrency is None else ConcurrencyLimit(concurrency)
        self._retries = retries
        self._pauses = Pauses(limiter.store, limiter.name)
        self._paused_until: dict[str, float] = {}

    def send(self, paced: PacedRequest) -> Flow[SentRequest]:
        """Send a request; the caller has to call ``finish`` when the body is closed.

        Raises ``PaceTimeout`` if it cannot go in time, and whatever sending it raises; then it is finished already.
        """
        waited_us = yield from self._wait_for_place(paced)
        try:
            attempts = 0
            while True:
                waited_us += yield from self._wait_for_slot(paced)
                response = yield Send(self._transport, paced.request)
                attempts += 1
                backoff_us = yield from self._backoff(paced, response, attempts)
                if backoff_us is None:
                    return SentRequest(response, attempts, waited_us / SECOND_US)
                yield Discard(response)
                yield from sleep(self.waiter.clock, backoff_us)
                waited_us += backoff_us
        except BaseException:
            self.finish(paced)
            raise

    @property
    def limits_concurrency(self) -> bool:
        """Whether requests have to be finished at all."""
        return self._concurrency is not None

    def finish(self, paced: PacedRequest) -> None:
        """Let the next request of this key go."""
        if self._concurrency is not None:
            self._concurrency.leave(paced.key)

    def _wait_for_place(self, paced: PacedRequest) -> Flow[float]:
        """Wait until fewer than ``concurrency`` requests are under way; returns the microseconds of the wait."""
        if self._concurrency is None:
            return 0.0
        started_us = self.waiter.now_us()
        if not (yield from self._concurrency.wait_and_enter(paced.key, self.waiter.clock, paced.deadline_us)):
            yield from self._give_up(paced, 0.0)
        return self.waiter.now_us() - started_us

    def _wait_for_slot(self, paced: PacedRequest) -> Flow[float]:
        """Wait for a slot outside all pauses; returns the microseconds of the wait."""
        started_us = self.waiter.now_us()
        paused_us = self._paused_until.get(paced.key, 0.0) - started_us
        while True:
            if paused_us > 0.0:
                yield from self._sleep(paced, paused_us)
            left = max(paced.deadline_us - self.waiter.now_us(), 0.0) / SECOND_US
            yield from self.waiter.wait(replace(paced.take, max_wait=left))
            paused_us = yield from self._pauses.left_us(paced.key)
            if paused_us <= 0.0:
                return self.waiter.now_us() - started_us

    def _backoff(self, paced: PacedRequest, response: Any, attempts: int) -> Flow[float | None]:
        """Microseconds to sleep before the request is sent again, ``None`` if the answer is final.

        A pause that the answer asks for begins here, and then there is no back-off: the pause itself is waited for
        like any other. If this raises an exception, the answer is closed.
        """
        try:
            pause = pause_of(response.status_code, response.headers, self._unix_time())
            if pause is not None:
                yield from self._pause(paced.key, pause)
        except GeneratorExit:
            raise
        except BaseException:
            yield Discard(response, read=False)
            raise
        if response.status_code not in THROTTLED or attempts > self._retries or not paced.can_be_sent_again:
            return None
        backoff_us = FIRST_BACKOFF_US * 2 ** (attempts - 1) if pause is None else 0.0
        wait_us = backoff_us if pause is None else pause * SECOND_US
        return None if self.waiter.now_us() + wait_us > paced.deadline_us else backoff_us

    def _pause(self, key: str, seconds: float) -> Flow[None]:
        now_us = self.waiter.now_us()
        current = {paused: until_us for paused, until_us in self._paused_until.items() if until_us > now_us}
        self._paused_until = {**current, key: max(current.get(key, 0.0), now_us + seconds * SECOND_US)}
        yield from self._pauses.begin(key, seconds)

    def _sleep(self, paced: PacedRequest, wait_us: float) -> Flow[None]:
        too_long_us = self.waiter.now_us() + wait_us - paced.deadline_us
        if too_long_us > 0.0:
            yield from self._give_up(paced, too_long_us)
        yield from sleep(self.waiter.clock, wait_us)

    def _give_up(self, paced: PacedRequest, too_long_us: float) -> Flow[None]:
        peeked: Decision = yield CallStore(self.waiter.store, self.waiter.store.peek(paced.take))
        raise pace_timeout(paced.take, as_refused(peeked, too_long_us))

    def _unix_time(self) -> float:
        return (self.waiter.clock or SystemClock()).now_us() / SECOND_US


@dataclass(slots=True)
class Send:
    """Send a request; the result is the answer."""

    transport: Any
    request: Any

    async def in_task(self) -> Any:
        return await self.transport.handle_async_request(self.request)

    def in_thread(self) -> Any:
        return self.transport.handle_request(self.request)


@dataclass(slots=True)
class Discard:
    """Close an unwanted answer; with ``read``, a small body is read first, which keeps its connection open."""

    response: Any
    read: bool = True

    async def in_task(self) -> None:
        if self._is_worth_reading():
            await self.response.aread()
        await self.response.aclose()

    def in_thread(self) -> None:
        if self._is_worth_reading():
            self.response.read()
        self.response.close()

    def _is_worth_reading(self) -> bool:
        length = self.response.headers.get("content-length", "")
        return self.read and length.isdecimal() and int(length) <= SMALL_BODY
