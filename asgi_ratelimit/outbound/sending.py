"""What becomes of a request on its way out: a gate, a turn, the pauses of its key, the answer, perhaps another try."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ..clock import SystemClock
from ..decision import Decision, Take
from ..limiter import Limiter
from ..quotas import SECOND_US
from ..waiting import Ask, Flow, Gates, Turns, pass_gate, refused, sleep, too_far
from .pauses import Pauses
from .retry_after import THROTTLED, pause_of

FIRST_BACKOFF_US = 500_000.0
"""How long a request waits that is refused without a word of when to come back; then twice as long each time."""

SMALL = 65_536
"""Bytes of a body that are read, rather than to give up its connection, when an answer is not wanted."""


@dataclass(slots=True)
class Terms:
    """On what terms a request goes out: what it takes, and until when it waits, by the clock of its turns."""

    take: Take
    deadline_us: float

    @property
    def key(self) -> str:
        """Whose gate and whose pauses it heeds: those of its own key."""
        return self.take.charges[0].key


@dataclass(slots=True)
class Sent:
    """A request that was sent: the answer, how often it went out, and how long it waited before that, in seconds."""

    response: Any
    attempts: int
    waited: float


class Way:
    """The way out of all requests of one transport, with room for ``concurrency`` of each key at a time."""

    def __init__(self, transport: Any, limiter: Limiter, concurrency: int | None, retries: int) -> None:
        self.turns = Turns(limiter.store)
        self._transport = transport
        self._gates = None if concurrency is None else Gates(concurrency)
        self._retries = retries
        self._pauses = Pauses(limiter.store, limiter.name)
        self._paused_until: dict[str, float] = {}

    def send(self, request: Any, terms: Terms) -> Flow[Sent]:
        """Send a request on its terms; the caller has to ``leave`` when the body is closed.

        Raises ``PaceTimeout`` where it cannot go in time, and whatever sending it raises; then there is none to leave.
        """
        waited_us = yield from self._enter(terms)
        try:
            attempts = 0
            while True:
                waited_us += yield from self._wait(terms)
                response = yield Send(self._transport, request)
                attempts += 1
                backoff_us = yield from self._heed(request, response, terms, attempts)
                if backoff_us is None:
                    return Sent(response, attempts, waited_us / SECOND_US)
                yield Discard(response)
                yield from sleep(self.turns.clock, backoff_us)
                waited_us += backoff_us
        except BaseException:
            self.leave(terms)
            raise

    @property
    def has_gates(self) -> bool:
        """Whether anything is to be left at all."""
        return self._gates is not None

    def leave(self, terms: Terms) -> None:
        """Make room for the next request of this key."""
        if self._gates is not None:
            self._gates.leave(terms.key)

    def _enter(self, terms: Terms) -> Flow[float]:
        """Pass the gate; the microseconds that this took."""
        started_us = self.turns.now_us()
        if self._gates is None:
            return 0.0
        if not (yield from pass_gate(self._gates, terms.key, self.turns.clock, terms.deadline_us)):
            yield from self._give_up(terms, 0.0)
        return self.turns.now_us() - started_us

    def _wait(self, terms: Terms) -> Flow[float]:
        """Wait for a turn that no pause lies on; the microseconds that this took."""
        started_us = self.turns.now_us()
        paused_us = self._paused_until.get(terms.key, 0.0) - started_us
        while True:
            if paused_us > 0.0:
                yield from self._sleep(terms, paused_us)
            left = max(terms.deadline_us - self.turns.now_us(), 0.0) / SECOND_US
            yield from self.turns.wait(replace(terms.take, max_wait=left))
            paused_us = yield from self._pauses.left_us(terms.key)
            if paused_us <= 0.0:
                return self.turns.now_us() - started_us

    def _heed(self, request: Any, response: Any, terms: Terms, attempts: int) -> Flow[float | None]:
        """Do what an answer asks for; the microseconds to back off before another try, ``None`` if there is to be none.

        After a pause, those are 0: it is waited for like any other. Whatever is raised, the answer is closed.
        """
        try:
            pause = pause_of(response.status_code, response.headers, self._unix_time())
            if pause is not None:
                yield from self._pause(terms.key, pause)
        except GeneratorExit:
            raise
        except BaseException:
            yield Discard(response, read=False)
            raise
        if response.status_code not in THROTTLED or attempts > self._retries or not _can_be_sent_again(request):
            return None
        backoff_us = FIRST_BACKOFF_US * 2 ** (attempts - 1) if pause is None else 0.0
        wait_us = backoff_us if pause is None else pause * SECOND_US
        return None if self.turns.now_us() + wait_us > terms.deadline_us else backoff_us

    def _pause(self, key: str, seconds: float) -> Flow[None]:
        now_us = self.turns.now_us()
        known = {paused: until for paused, until in self._paused_until.items() if until > now_us}
        self._paused_until = {**known, key: max(known.get(key, 0.0), now_us + seconds * SECOND_US)}
        yield from self._pauses.begin(key, seconds)

    def _sleep(self, terms: Terms, wait_us: float) -> Flow[None]:
        too_long_us = self.turns.now_us() + wait_us - terms.deadline_us
        if too_long_us > 0.0:
            yield from self._give_up(terms, too_long_us)
        yield from sleep(self.turns.clock, wait_us)

    def _give_up(self, terms: Terms, too_long_us: float) -> Flow[None]:
        looked: Decision = yield Ask(self.turns.store, self.turns.store.peek(terms.take))
        raise too_far(terms.take, refused(looked, too_long_us))

    def _unix_time(self) -> float:
        return (self.turns.clock or SystemClock()).now_us() / SECOND_US


def _can_be_sent_again(request: Any) -> bool:
    """Whether a request has its whole body at hand: then it streams to both kinds of clients, else to one, once."""
    return hasattr(request.stream, "__iter__") and hasattr(request.stream, "__aiter__")


@dataclass(slots=True)
class Send:
    """Send a request; comes to the answer."""

    transport: Any
    request: Any

    async def in_task(self) -> Any:
        return await self.transport.handle_async_request(self.request)

    def in_thread(self) -> Any:
        return self.transport.handle_request(self.request)


@dataclass(slots=True)
class Discard:
    """Be done with an answer; where little is left to ``read``, its connection is kept."""

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
        return self.read and length.isdecimal() and int(length) <= SMALL
