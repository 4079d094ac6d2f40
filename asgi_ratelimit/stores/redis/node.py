"""One Redis, for one event loop: the takes of all callers go to it in batches, over one connection."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import getrandbits
from typing import Any, TypeAlias

from redis.asyncio import ConnectionPool

from ...algorithms import BIRTH_BITS, PLAIN_PARTS, Outcome, decision_of, is_allowed
from ...clock import Clock, monotonic_us
from ...decision import Charge, Decision, Settlement, Take
from ...errors import StoreError, StoreUnavailable
from ...quotas import SECOND_US
from ..call_observers import Observers, StoreCall
from .batching import Finish, GroupCommit
from .connection.script_calls import ScriptCall, ScriptCaller
from .connection.store_errors import EventLoopEnded, NotWritable, store_error_of
from .denials import Denials
from .outage.breaker import Breaker
from .outage.ledger import any_charge
from .outage.local_decisions import MAX_VALUES, LocalDecisions
from .outage.repayer import REPAID_TOGETHER, Repayer
from .outage.repayments import settlement_of_nothing
from .script_actions import (
    Action,
    BucketCharge,
    Peek,
    Repaid,
    Repayment,
    charges_of,
    has_written,
    is_one_of,
    resends,
    take_of,
    taken_as,
)
from .script_actions import Answer as ActionAnswer
from .script_encoding import Reply, decode, encode

Answer: TypeAlias = ActionAnswer | StoreError
"""The answer to an action, or the error of this one action."""

_OWN_CLOCK_TTL_MS = 3_600_000
"""The least time to live of a key when the clock is not the server's."""


@dataclass(frozen=True, slots=True)
class NodeContext:
    """The context that all nodes of one store share. ``timeout`` is in seconds."""

    prefix: bytes
    timeout: float
    clock: Clock | None
    denials: Denials
    local: LocalDecisions
    operation_ttl_us: float
    observers: Observers = field(default_factory=Observers)

    def script_call(self, actions: Sequence[Action]) -> ScriptCall:
        """The call of the script that carries out these actions; its last argument is where births start."""
        keys, quotas, packed = encode(self.prefix, actions, self.operation_ttl_us)
        now, least_ttl_ms = (b"%d" % self.clock.now_us(), _OWN_CLOCK_TTL_MS) if self.clock else (b"", 1)
        return (len(keys), *keys, quotas, packed, now, least_ttl_ms, getrandbits(BIRTH_BITS - 1))

    def answers(self, actions: Sequence[Action], call: ScriptCall, reply: Reply, sent_us: float) -> Sequence[Answer]:
        """The answers to actions in the reply to a call; the denial cache and the local decisions learn from them.

        ``sent_us`` is the time of the call by the clock of the denial cache. There are fewer answers than actions if
        the script has stopped at its bound of work. Raises ``StoreError`` for a malformed reply.
        """
        answers, values, is_plain = decode(actions, reply, int(call[-1]))
        self.local.latest_values.update(values)
        if len(self.local.latest_values) > MAX_VALUES:
            self.local.forget_oldest_values()
        if is_plain and not self.denials.by_bucket:
            return answers
        for action, answer in zip(actions, answers):
            if type(answer) is tuple and len(answer) == PLAIN_PARTS:
                self.denials.by_bucket.pop(action[1], None)  # type: ignore[index]  # it is a charge
            elif type(action) is not Peek:
                self._learn(action, answer, sent_us)
        return answers

    def _learn(self, action: Action, answer: Answer, sent_us: float) -> None:
        """Remember a refusal; forget those of buckets that anything else has changed, and entries that are repaid."""
        denials, ledger = self.denials, self.local.ledger
        decision = answer
        if type(answer) is tuple and not is_allowed(answer):
            decision = decision_of(charges_of(action)[0], answer)
        if isinstance(decision, Decision) and not decision.allowed:
            denials.note(decision, sent_us)
        elif not isinstance(answer, StoreError):
            if denials.by_bucket:  # resets too: a refusal may have come back after the reset was submitted
                denials.forget(charges_of(action))
            if ledger.has_entries and isinstance(action, (Repayment, Settlement)):
                ledger.remove(action, answer if isinstance(answer, Repaid) else Repaid())

    def error_of(self, reply: Exception) -> StoreError:
        """The ``StoreError`` for a call that Redis has answered with an error."""
        return store_error_of(reply, self.timeout, self.prefix)

    def observed(self, size: int, finish: Finish[Answer]) -> Finish[Answer]:
        """``finish`` for a call with ``size`` actions that begins now; it also calls the observers."""
        since_us = monotonic_us()

        def finish_and_report(answers: Sequence[Answer] | Exception) -> None:
            seconds = (monotonic_us() - since_us) / SECOND_US
            error = answers if isinstance(answers, Exception) else None
            try:
                finish(answers)
            finally:
                store, local = self.prefix.decode(), self.local
                self.observers.report(StoreCall(store, size, seconds, error, local.is_out, len(local.ledger)))

        return finish_and_report


class RedisNode:
    """One Redis, called ``name`` in the log, for one event loop. A batch that fails opens the breaker.

    ``is_here`` says whether the bucket of a charge is on this node.
    """

    decides_in_outage = True
    """Whether this process decides a take that gets no answer; it does not decide parts of a take."""

    def __init__(
        self,
        context: NodeContext,
        pool: ConnectionPool,
        name: str = "",
        is_here: Callable[[Charge], bool] = any_charge,
    ) -> None:
        self.breaker = Breaker(monotonic_us, context.timeout * 1e6)
        self.name = name
        self._context = context
        self._is_here = is_here
        self._is_untried = True  # another event loop may have found Redis out: then report it back
        self._failure: StoreError | None = None
        self._failure_of_some: StoreError | None = None
        """Why some actions of the batch in flight failed, although others were carried out."""
        self._caller = ScriptCaller(pool, context.timeout)
        self._group: GroupCommit[Action, Answer] = GroupCommit(
            self._send_batch,
            self._decide_without,
            self._refuse_early,
            resends=resends,
            eager=self.decides_in_outage,
        )
        self.send = self._group.submit
        """``submit`` for a caller that the breaker has allowed."""
        self._repayer = Repayer(context.local.ledger, is_here, self._group.submit_all)

    def take(self, take: Take) -> Decision | Awaitable[Decision]:
        """The decision of one take, whatever happens to Redis."""
        if take.operation is not None:
            self._context.local.ledger.forget_refund(take)
        if self.breaker.is_open and not self.breaker.begin_call():
            return self._context.local.decide(take)
        return self.send(take)  # type: ignore[return-value]  # a take is answered with a decision

    def charge(self, charge: BucketCharge) -> Outcome | Decision | Awaitable[Outcome | Decision]:
        """The outcome of a take of one charge without a wait, whatever happens to Redis."""
        if self.breaker.is_open and not self.breaker.begin_call():
            return self._context.local.decide(take_of(charge))
        return self.send(charge)  # type: ignore[return-value]  # a charge is answered with one of these

    def take_all(self, takes: Sequence[Take]) -> list[Decision | Awaitable[Decision]]:
        """``take`` for several, in one batch."""
        if len(takes) > 1:
            self._group.hold()
        return list(map(self.take, takes))

    def submit(self, action: Action) -> Awaitable[Answer]:
        """The answer to ``action``. Raises ``StoreError``, at once while the breaker is open."""
        if self.breaker.begin_call():
            return self.send(action)
        raise StoreUnavailable(f"not called, because the last call failed: {self._failure}")

    async def aclose(self) -> None:
        """Answer what waits, charge Redis with the outage ledger while it answers, and close the connection."""
        if self._context.local.ledger.has_entries and self.breaker.begin_call():
            self._repayer.start()
        await self._repayer.aclose()
        await self._group.drain()
        await self._caller.aclose()

    def _send_batch(self, actions: list[Action], submitted: float, finish: Finish[Answer]) -> None:
        if self._context.observers.references:
            finish = self._context.observed(len(actions), finish)
        if self._context.local.ledger.has_entries:
            self._caller.start(self._call(actions, submitted, finish))
            return
        sent_us = self._context.denials.now_us()
        call = self._context.script_call(actions)
        self._caller.call(call, submitted, partial(self._answered, actions, call, sent_us, finish))

    def _answered(
        self,
        actions: Sequence[Action],
        call: ScriptCall,
        sent_us: float,
        finish: Finish[Answer],
        reply: Any,
    ) -> None:
        """Finish a batch with the answers in ``reply``."""
        answers: Sequence[Answer] | Exception
        try:
            if isinstance(reply, Exception):
                raise self._context.error_of(reply) from reply
            answers = self._context.answers(actions, call, reply, sent_us)
        except Exception as error:  # noqa: BLE001  # whatever it is, it must reach those who wait
            answers = error
        is_plain = not (self._is_untried or self.breaker.is_open or self._context.local.ledger.has_entries)
        if is_plain and not isinstance(answers, Exception):
            finish(answers)
        else:
            self._finish(actions, answers, finish)

    async def _call(self, actions: Sequence[Action], submitted: float, finish: Finish[Answer]) -> None:
        """Send a batch after the outage ledger's entries for its buckets, all within its deadline."""
        answers: Sequence[Answer] | Exception = EventLoopEnded()
        try:
            await self._repay_ahead(actions, submitted)
            if self._failure_of_some is not None:
                raise self._failure_of_some
            answers = await self._answers(actions, submitted)
        except Exception as error:  # noqa: BLE001  # whatever it is, it must reach those who wait
            answers = error
        finally:
            self._finish(actions, answers, finish)

    async def _repay_ahead(self, actions: Sequence[Action], submitted: float) -> None:
        """Charge Redis with the entries of the buckets of a batch, so that none of its takes passes before them.

        While Redis may be out, an action that changes no bucket goes first. Until it is answered, this process decides.
        """
        ledger = self._context.local.ledger
        others = [each for each in actions if not isinstance(each, (Repayment, Settlement))]
        if not (ledger.has_entries and others):
            return
        own = taken_as(others)
        if self._is_untried or self.breaker.is_open:
            trial = [settlement_of_nothing(charges_of(others[0])[0])]
            self._record_success(trial, await self._answers(trial, submitted))
            first = ledger.collect(self._is_here, REPAID_TOGETHER)
            await self._answers([each for each in first if not is_one_of(each, own)], submitted)
        buckets = {charge.bucket for action in others for charge in charges_of(action)}
        while entries := ledger.of_buckets(buckets, own, self._is_here)[:REPAID_TOGETHER]:
            if any(isinstance(answer, StoreError) for answer in await self._answers(entries, submitted)):
                return

    async def _answers(self, actions: Sequence[Action], submitted: float) -> list[Answer]:
        """The answers to all actions; actions that the script leaves undone, at its bound of work, are sent again.

        If that fails, the failure is the answer to those. Raises ``StoreError`` if no action was carried out.
        """
        answers: list[Answer] = []
        while len(answers) < len(actions):
            left = actions[len(answers) :]
            try:
                answers += await self._call_once(left, submitted)
            except StoreError as error:
                if not answers:
                    raise
                self._failure_of_some = error
                answers += [error] * len(left)
        return answers

    async def _call_once(self, actions: Sequence[Action], submitted: float) -> Sequence[Answer]:
        """The answers to the first actions, as many as one call of the script carries out."""
        sent_us = self._context.denials.now_us()
        call = self._context.script_call(actions)
        (reply,) = await self._caller.evaluate([call], submitted)
        if isinstance(reply, Exception):
            raise self._context.error_of(reply) from reply
        return self._context.answers(actions, call, reply, sent_us)

    def _finish(self, actions: Sequence[Action], answers: Sequence[Answer] | Exception, finish: Finish[Answer]) -> None:
        """Open or close the breaker according to the outcome of a batch, then finish the batch.

        If only some of its actions have failed, the others still count, but the node is out.
        """
        failure, self._failure_of_some = self._failure_of_some, None
        try:
            if isinstance(answers, StoreError):
                failure = answers
            if failure is not None:
                if not isinstance(failure, EventLoopEnded):
                    self._record_failure(failure)
            elif not isinstance(answers, Exception):
                if self._is_untried or self.breaker.is_open:
                    self._record_success(actions, answers)
                if self._context.local.ledger.has_entries and not self.breaker.is_open:
                    self._repayer.start_if_due()
        finally:
            finish(answers)

    def _record_failure(self, failure: StoreError) -> None:
        self.breaker.record_failure()
        self._failure = failure
        self._context.local.store_is_out(failure, self.name)
        self._caller.drop()

    def _record_success(self, actions: Sequence[Action], answers: Sequence[Answer]) -> None:
        """Close the breaker, unless Redis could not write before and this batch wrote nothing."""
        if isinstance(self._failure, NotWritable) and not any(map(has_written, actions, answers)):
            self.breaker.record_failure()
            return
        self._is_untried = False
        self.breaker.record_success()
        self._context.local.store_is_back(self.name)
        self._repayer.start_soon()

    def _decide_without(self, action: Action, error: Exception) -> Answer:
        """The local decision of a take that got no answer. Raises ``error`` for any other action."""
        take = take_of(action) if isinstance(action, tuple) else action
        if isinstance(take, Take) and isinstance(error, StoreError) and self.decides_in_outage:
            return self._context.local.decide(take, is_unclear=True)
        raise error

    def _refuse_early(self, actions: Sequence[Action]) -> Sequence[Answer] | None:
        """The refusals that have become certain while the takes waited.

        A take is not refused early if an action ahead of it may change its bucket.
        """
        denials = self._context.denials
        if not denials.by_bucket or not self.decides_in_outage:
            return None
        answers: list[Answer] = []
        ahead: set[str] = set()
        for action in actions:
            take = take_of(action) if isinstance(action, tuple) else action
            buckets = [charge.bucket for charge in take.charges]
            denied = None
            if isinstance(take, Take) and take.operation is None and ahead.isdisjoint(buckets):
                denied = denials.find(take)
            if denied is None:
                ahead.update(buckets)
            answers.append(denied)
        return answers
