"""A lane: the way to one Redis from one event loop, on which the takes of all callers travel in batches."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, TypeAlias

from redis.asyncio import ConnectionPool
from redis.exceptions import ResponseError

from ...clock import Clock, monotonic_us
from ...decision import Bucket, Charge, Decision, Take
from ...errors import StoreError, StoreUnavailable
from . import script as _wire
from .batching import GroupCommit, Tell
from .connection.script_calls import Call, Link, NotWritable, as_ours
from .denials import Denials
from .outage.breaker import Breaker
from .outage.local_decisions import Failover

Answer: TypeAlias = list[Decision] | Decision | StoreError | None
"""What comes of a take (a list of one), of a look, of one that failed alone, and of a settlement or a reset."""

Answers: TypeAlias = "Sequence[Answer] | Exception"
"""The answer to each action of a batch, or why there are none."""

_AT_ONCE = 64
"""How many buckets are charged at once with what was taken while the store was out."""

_STEPPED_TTL_MS = 3_600_000
"""The least time to live of a key where the clock is not the server's."""


@dataclass(frozen=True, slots=True)
class Shared:
    """What all lanes of one store have in common. ``timeout`` is in seconds."""

    prefix: bytes
    timeout: float
    clock: Clock | None
    denials: Denials
    failover: Failover

    def call(self, actions: Sequence[_wire.Action]) -> Call:
        """What the script is called with to carry out these actions."""
        keys, quotas, todo = _wire.encode(self.prefix, actions)
        now, least_ttl_ms = (b"%d" % self.clock.now_us(), _STEPPED_TTL_MS) if self.clock else (b"", 1)
        return (len(keys), *keys, quotas, todo, now, least_ttl_ms)

    def answers(self, actions: Sequence[_wire.Action], reply: _wire.Reply, asked_us: float) -> list[Answer]:
        """The answers in the script's reply to actions, from which the denial cache and the failover learn.

        ``asked_us`` is when it was called, by the clock of the denial cache. Raises ``StoreError`` for nonsense.
        """
        decisions, known = _wire.decode(actions, reply)
        self.failover.follow(known)
        denied = bool(self.denials)
        if not denied and _are_grants(actions, reply):
            return [[decision] for decision in decisions if decision is not None]
        answers: list[Answer] = []
        for action, decision in zip(actions, decisions):
            if decision is None:  # again: a refusal may have been under way when it was submitted
                self.denials.forget(action.charges)
                answers.append(None)
            elif type(action) is not Take:
                answers.append(decision)
            else:
                if not decision.allowed:
                    self.denials.note(decision, asked_us)
                    denied = True
                elif denied:
                    self.denials.forget(action.charges)
                answers.append([decision])
        return answers


def _are_grants(actions: Sequence[_wire.Action], reply: _wire.Reply) -> bool:
    """Whether all actions are takes, and the script has let all of them pass, as is mostly so."""
    verdicts = reply[1]
    return verdicts is not None and verdicts.count(b"1") == len(actions) and set(map(type, actions)) == {Take}


def _every(charge: Charge) -> bool:
    return True


class Lane:
    """The way to one Redis, ``where``, for one event loop. A batch that fails opens the breaker.

    ``owns`` says whether the bucket of a charge is there.
    """

    carries_parts = False
    """Whether a take may be a part of one, so that somebody else decides what becomes of it without the store."""

    def __init__(
        self, shared: Shared, pool: ConnectionPool, where: str = "", owns: Callable[[Charge], bool] = _every
    ) -> None:
        self.breaker = Breaker(monotonic_us, shared.timeout * 1e6)
        self._shared = shared
        self.where = where
        self._owns = owns
        self._failure: StoreError | None = None
        self._link = Link(pool, shared.timeout)
        self._repaying: asyncio.Task[None] | None = None
        self._group: GroupCommit[_wire.Action, Answer] = GroupCommit(
            self._commit, self._without, self._denied, self._close, hurries=not self.carries_parts
        )
        self.send = self._group.submit
        """``submit`` for a caller who has asked the breaker already."""

    def take(self, take: Take) -> list[Decision] | Awaitable[list[Decision]]:
        """The decision of one take, whatever happens to the store: now, or what to await for it."""
        if self.breaker.is_open and not self.breaker.lets_through():
            return [self._shared.failover.decide(take)]
        return self.send(take)  # type: ignore[return-value]  # a list is what a take is answered with

    def take_all(self, takes: Sequence[Take]) -> list[list[Decision] | Awaitable[list[Decision]]]:
        """``take`` for several that come together, and travel together."""
        if len(takes) > 1:
            self._group.expect_more()
        return list(map(self.take, takes))

    def submit(self, action: _wire.Action) -> Awaitable[Answer]:
        """What comes of ``action``. Raises ``StoreError``, and at once while the breaker is open."""
        if self.breaker.lets_through():
            return self.send(action)
        raise StoreUnavailable(f"tried a moment ago: {self._failure}")

    def repay(self) -> None:
        """Charge Redis with what was taken here while it was out: bit by bit, so that no take waits for all of it."""
        if self._shared.failover.debts and (self._repaying is None or self._repaying.done()):
            self._repaying = asyncio.get_running_loop().create_task(self._repay())

    async def aclose(self) -> None:
        """Fail what waits, and close the connection."""
        if self._repaying is not None:
            self._repaying.cancel()
            await asyncio.wait([self._repaying])
        await self._group.aclose(StoreUnavailable("the store was closed"))

    def _commit(self, actions: list[_wire.Action], submitted: float, tell: Tell[Answer]) -> None:
        """Carry out a batch, the first of which was submitted at that time of the event loop."""
        self._carry_out(actions, submitted, partial(self._told, tell))

    def _without(self, action: _wire.Action, error: Exception) -> Answer:
        """The decision of a take to which no answer came. Raises ``error`` for all else."""
        if type(action) is Take and isinstance(error, StoreError) and not self.carries_parts:
            return [self._shared.failover.decide(action)]
        raise error

    def _denied(self, actions: Sequence[_wire.Action]) -> Sequence[Answer] | None:
        """The refusals that are certain by now, of takes that have waited while others were refused.

        Nothing is certain of a bucket that somebody further ahead goes to.
        """
        denials = self._shared.denials
        if not denials or self.carries_parts:
            return None
        answers: list[Answer] = []
        ahead: set[Bucket] = set()
        for action in actions:
            buckets = [charge.bucket for charge in action.charges]
            denied = denials.find(action) if type(action) is Take and ahead.isdisjoint(buckets) else None
            if denied is None:
                ahead.update(buckets)
            answers.append(None if denied is None else [denied])
        return answers

    def _carry_out(self, actions: Sequence[_wire.Action], submitted: float, done: Tell[Answer]) -> None:
        """Tell ``done`` the answer to each action, or why there are none."""
        asked_us = self._shared.denials.now_us()

        def read(reply: Any) -> None:
            try:
                answers: Answers = self._read(actions, reply, asked_us)
            except Exception as error:  # noqa: BLE001  # whatever it was, it must reach those who wait
                answers = error
            done(answers)

        self._link.call(self._shared.call(actions), submitted, read)

    def _read(self, actions: Sequence[_wire.Action], reply: Any, asked_us: float) -> Sequence[Answer]:
        """The answers in what came of a call. Raises ``StoreError``."""
        if isinstance(reply, ResponseError):
            raise as_ours(reply, self._shared.timeout) from reply
        if isinstance(reply, StoreError):
            raise reply
        return self._shared.answers(actions, reply, asked_us)

    def _told(self, tell: Tell[Answer], answers: Answers) -> None:
        """Tell the answers to those who wait, once it is known whether the store is in or out."""
        try:
            if isinstance(answers, StoreError):
                self._failed(answers)
            elif self.breaker.is_open and not isinstance(answers, Exception):
                self._try_succeeded(answers)
        except Exception as error:  # noqa: BLE001  # as above
            answers = error
        tell(answers)

    def _failed(self, failure: StoreError) -> None:
        self.breaker.failed()
        self._failure = failure
        self._shared.failover.out(failure, self.where)
        self._link.drop()

    def _try_succeeded(self, answers: Sequence[Answer]) -> None:
        """The store is back, unless it could not write before and has only refused now."""
        if isinstance(self._failure, NotWritable) and not any(map(_has_written, answers)):
            self.breaker.failed()
            return
        self.breaker.succeeded()
        self._shared.failover.back(self.where)
        self.repay()

    async def _repay(self) -> None:
        due = self._shared.failover.debts.due(self._owns)
        while some := list(islice(due, _AT_ONCE)):
            answers = await asyncio.gather(*self._group.submit_all(some), return_exceptions=True)
            if any(isinstance(answer, BaseException) for answer in answers):
                return  # the rest stays due, but not these: they may have been charged

    async def _close(self) -> None:
        await self._link.aclose()


def _has_written(answer: Answer) -> bool:
    """Whether an action has booked something, settled or reset: a refusal and a look have not."""
    return answer is None or (isinstance(answer, list) and answer[0].allowed)
