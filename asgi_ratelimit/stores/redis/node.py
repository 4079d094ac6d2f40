"""One Redis, for one event loop: the takes of all callers go to it in batches, one call of the script each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from random import getrandbits

from redis.exceptions import NoScriptError, ResponseError

from ...algorithms import Booked
from ...clock import Clock, monotonic_us
from ...decision import Charge, Settled, Settlement
from ...errors import StoreError, StoreTimeout, StoreUnavailable
from ...logs import FailureLog
from ...quotas import SECOND_US
from ..base import Decisions, Observer, StoreCall
from ..event_loops import keep
from .batching import GroupCommit
from .clients import CLOSE_WITHIN, Connection, Server, store_error_of, timed_out
from .denials import Denials
from .outage import Breaker, Outage
from .wire import PEEK_ID, SCRIPT, SCRIPT_SHA, Action, Answer, NumberedTake, charges_of, decode, encode

MOST_WEIGHT = 512
"""The most charges of token buckets in one call, so that Redis is never held for more than a few milliseconds."""

REPAID_TOGETHER = 60
"""The number of entries of the outage ledger that are sent at a time."""

OWN_CLOCK_TTL_MS = 3_600_000
"""The least time to live of a key when the clock is not the server's."""


_failures = FailureLog()


@dataclass(slots=True)
class Context:
    """What all nodes and event loops of one store share. ``timeout`` is in seconds."""

    server: Server
    prefix: str
    timeout: float
    clock: Clock | None
    operation_ttl_ms: int
    denials: Denials
    outage: Outage
    observers: list[Observer] = field(default_factory=list)


class Node(GroupCommit[Action, Answer]):
    """One Redis, called ``name`` in the log, for one event loop. A call that fails opens the breaker."""

    def __init__(self, context: Context, connection: Connection, name: str) -> None:
        super().__init__(context.timeout, MOST_WEIGHT)
        self.breaker = Breaker(monotonic_us, context.timeout * SECOND_US)
        self.name = name
        self.context = context
        self.connection = connection
        self._failure: StoreError | None = None
        self._repaying: asyncio.Task[None] | None = None

    def is_here(self, bucket: str) -> bool:  # noqa: ARG002  # a node of a cluster has some of them
        """Whether a bucket is on this node."""
        return True

    def take(self, take: NumberedTake) -> Decisions | Awaitable[Answer]:
        """The decision on a take, which the outage decides if Redis does not answer, at once while it is out."""
        if self._is_out(take.take.charges[0]):
            return Decisions((self.context.outage.decide(take.take),))
        return self.submit(take)

    def _is_out(self, charge: Charge) -> bool:
        """Whether Redis is out, so that a take of this charge is not sent; begins a trial if one is due.

        No take waits for a trial. It is the settlement of nothing, which shows that Redis can write, too.
        """
        if not self.breaker.is_open:
            return False
        if self.breaker.begin_call():
            trial = Settlement(charge, Booked(0.0, 0.0, 0.0, 0.0), 0.0, getrandbits(52))
            keep(self, self.submit(trial))
        return True

    def instead(self, action: Action, error: BaseException) -> Answer | BaseException:
        """The decision of the outage on a take that Redis did not answer; the error for anything else."""
        if type(action) is NumberedTake and isinstance(error, StoreError) and action.id and not action.is_part:
            return Decisions((self.context.outage.decide(action.take),))
        return error

    async def answer(self, action: Action) -> Answer:
        """The answer to ``action``. Raises ``StoreError``, at once while the breaker is open.

        A caller that is cancelled does not take it back: what a request gives back as it ends is given back.
        """
        if type(action) is NumberedTake and action.is_part:
            is_called = not self._is_out(action.take.charges[0])
        else:
            is_called = self.breaker.begin_call()
        if is_called:
            return await asyncio.shield(keep(self, self.submit(action)))
        raise StoreUnavailable(f"not called, because the last call failed: {self._failure}")

    async def aclose(self) -> None:
        """Answer what waits, and charge Redis with the outage ledger while it answers."""
        if self.context.outage.ledger and self.breaker.begin_call():
            self._repay_soon()
        if self._repaying is not None:
            await asyncio.wait([self._repaying], timeout=CLOSE_WITHIN)
        await self.drain()
        if not self.context.server.is_cluster:
            await self.connection.aclose()

    def within_slot(self, settlement: Settlement) -> Settlement:
        """The settlement as it is: one server has all buckets."""
        return settlement

    def weight_of(self, action: Action) -> int:
        """As how many charges of a token bucket it counts, for the work that the script has with it."""
        return sum([charge.quota.weight for charge in charges_of(action)])

    async def send(self, actions: list[Action]) -> Sequence[Answer | Exception]:
        """The answers to all actions; sums of the outage ledger for their buckets are charged before them."""
        since_us, outage = monotonic_us(), self.context.outage
        entries: list[Action] = []
        if outage.ledger:
            own = set(map(id, actions))
            buckets = {charge.bucket for action in actions for charge in charges_of(action)}
            entries = [each for each in outage.ledger.of_buckets(buckets) if id(each) not in own]
        error: Exception | None = StoreTimeout("cancelled")
        try:
            sent = [*entries, *actions]
            answers = await self.carry_out(sent)
            error = None
            self._succeeded(sent, answers)
            return answers[len(entries) :]
        except StoreError as failure:
            error = failure
            self._failed(failure)
            raise
        finally:
            if self.context.observers:
                self._report(len(actions), monotonic_us() - since_us, error)

    def _report(self, size: int, took_us: float, error: Exception | None) -> None:
        outage = self.context.outage
        call = StoreCall(self.context.prefix, size, took_us / SECOND_US, error, bool(outage.nodes), len(outage.ledger))
        for observer in self.context.observers:
            try:
                observer.store_called(call)
            except Exception as failure:  # noqa: BLE001  # it is the user's, and may raise anything
                _failures.report(f"the hook {observer!r} failed", failure, id(observer))

    async def carry_out(self, actions: Sequence[Action]) -> list[Answer | Exception]:
        """The answers to actions that one call of the script carries out. Raises ``StoreError``."""
        context, mark = self.context, getrandbits(64).to_bytes(8, "little")
        own_clock = context.clock
        now, least_ttl_ms = (b"", 1) if own_clock is None else (b"%d" % own_clock.now_us(), OWN_CLOCK_TTL_MS)
        sent_us = context.denials.now_us()
        keys, quotas, packed = encode(context.prefix, actions)
        arguments = (quotas, packed, now, least_ttl_ms, context.operation_ttl_ms, mark)
        try:
            client = self.connection.client or await self.connection.open()
            try:
                reply = await client.evalsha(SCRIPT_SHA, len(keys), *keys, *arguments)
            except NoScriptError:  # Redis forgets scripts when it restarts; then the text is sent, once
                reply = await client.eval(SCRIPT, len(keys), *keys, *arguments)
        except Exception as error:  # redis-py raises many kinds
            raise store_error_of(error, context.timeout, context.prefix) from error
        answers: list[Answer | Exception] = list(decode(actions, reply, mark))
        for at, (action, answer) in enumerate(zip(actions, answers)):
            if isinstance(answer, StoreUnavailable):  # the text of an error that Redis gave to the script
                answers[at] = store_error_of(ResponseError(str(answer)), context.timeout, context.prefix)
            elif type(answer) is Decisions and not answer[0].allowed:
                context.denials.note(answer[0], sent_us)
            elif context.denials.by_bucket and not (type(action) is NumberedTake and action.id == PEEK_ID):
                context.denials.forget(charges_of(action))
        return answers

    def _succeeded(self, actions: Sequence[Action], answers: Sequence[Answer | Exception]) -> None:
        """Close the breaker, once Redis has written, and charge it with the outage ledger from now on."""
        outage, failed = self.context.outage, [answer for answer in answers if isinstance(answer, StoreError)]
        if failed:
            self._failed(failed[0])
            return
        if (self.breaker.is_open or outage.nodes) and any(map(_has_written, answers)):
            self.breaker.is_open = False
            outage.store_is_back(self.name)
        if outage.ledger:
            for action, answer in zip(actions, answers):
                if type(action) is Settlement and type(answer) is Settled:
                    outage.ledger.done(action)
            self._repay_soon()

    def _failed(self, failure: StoreError) -> None:
        self.breaker.record_failure()
        self._failure = failure
        self.context.outage.store_is_out(failure, self.name)
        self.connection.failed()

    def timed_out(self) -> Exception:
        """Redis has not answered a batch."""
        failure = timed_out(self.context.timeout)
        self._failed(failure)
        return failure

    def _repay_soon(self) -> None:
        """Charge Redis with the outage ledger in the background, unless that is under way."""
        if self._repaying is None or self._repaying.done():
            self._repaying = asyncio.get_running_loop().create_task(self._repay())

    async def _repay(self) -> None:
        """Send entries, between the takes, until none is left or one fails."""
        ledger = self.context.outage.ledger
        while entries := ledger.some(REPAID_TOGETHER, self.is_here):
            answers = await asyncio.gather(*map(self.submit, entries), return_exceptions=True)
            if any(isinstance(answer, BaseException) for answer in answers):
                return


def _has_written(answer: Answer | Exception) -> bool:
    return type(answer) is Settled or (type(answer) is Decisions and answer[0].id != 0)
