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

from ..clock import Clock, monotonic_us
from ..decision import Charge, Decision, Take
from ..errors import StoreError, StoreUnavailable
from . import _wire
from ._breaker import Breaker
from ._denials import Denials
from ._failover import Failover
from ._group_commit import GroupCommit, Tell
from ._link import Call, Link, NotWritable, as_ours

Answer: TypeAlias = list[Decision] | Decision | StoreError | None
"""What comes of a take (a list of one), of a look, of one that failed alone, and of a settlement or a reset."""

Results: TypeAlias = "Sequence[_wire.Result | StoreError]"

Done: TypeAlias = "Callable[[Results | Exception], None]"
"""Is told the result of each action of a batch, or why there are none."""

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

    def noted(self, actions: Sequence[_wire.Action], results: Results, asked_us: float) -> list[Answer]:
        """The answers in the results of actions, once the denial cache and the failover have learned from them."""
        answers: list[Answer] = []
        denials, follow = self.denials, self.failover.follow
        denied = bool(denials)
        for action, result in zip(actions, results):
            if result is None or isinstance(result, StoreError):
                if result is None:  # again: a refusal may have been under way when it was submitted
                    denials.forget(action.charges)
                answers.append(result)
                continue
            decision, states = result
            if type(action) is not Take:
                answers.append(decision)
                continue
            if not decision.allowed:
                denials.note(decision, asked_us)
                denied = True
                states = decision.before or ()
            elif denied:
                denials.forget(action.charges)
            follow(action.charges, states)
            answers.append([decision])
        return answers


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
        self._group: GroupCommit[_wire.Action, Answer] = GroupCommit(self._commit, self._without, self._close)
        self.send = self._group.submit
        """``submit`` for a caller who has asked the breaker already."""

    def take(self, take: Take) -> list[Decision] | Awaitable[list[Decision]]:
        """The decision of one take, whatever happens to the store: now, or what to await for it."""
        if self.breaker.is_open and not self.breaker.lets_through():
            return [self._shared.failover.decide(take)]
        return self.send(take)  # type: ignore[return-value]  # a list is what a take is answered with

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
        asked_us = self._shared.denials.now_us()
        self._carry_out(actions, submitted, partial(self._told, actions, asked_us, tell))

    def _without(self, action: _wire.Action, error: Exception) -> Answer:
        """The decision of a take to which no answer came. Raises ``error`` for all else."""
        if type(action) is Take and isinstance(error, StoreError) and not self.carries_parts:
            return [self._shared.failover.decide(action)]
        raise error

    def _carry_out(self, actions: Sequence[_wire.Action], submitted: float, done: Done) -> None:
        """Tell ``done`` the result of each action, or why there are none."""

        def read(answer: Any) -> None:
            try:
                results = self._read(actions, answer)
            except Exception as error:  # noqa: BLE001  # whatever it was, it must reach those who wait
                done(error)
            else:
                done(results)

        self._link.call(self._shared.call(actions), submitted, read)

    def _read(self, actions: Sequence[_wire.Action], answer: Any) -> Results:
        """The results in what came of a call. Raises ``StoreError``."""
        if isinstance(answer, ResponseError):
            raise as_ours(answer, self._shared.timeout) from answer
        if isinstance(answer, StoreError):
            raise answer
        return _wire.decode(actions, answer)

    def _told(
        self, actions: list[_wire.Action], asked_us: float, tell: Tell[Answer], results: Results | Exception
    ) -> None:
        try:
            tell(self._answers(actions, asked_us, results))
        except Exception as error:  # noqa: BLE001  # as above
            tell(error)

    def _answers(self, actions: list[_wire.Action], asked_us: float, results: Results | Exception) -> list[Answer]:
        if isinstance(results, StoreError):
            self.breaker.failed()
            self._failure = results
            self._shared.failover.out(results, self.where)
            self._link.drop()
        if isinstance(results, Exception):
            raise results
        if self.breaker.is_open:
            self._try_succeeded(results)
        return self._shared.noted(actions, results, asked_us)

    def _try_succeeded(self, results: Results) -> None:
        """The store is back, unless it could not write before and has only refused now."""
        if isinstance(self._failure, NotWritable) and not any(map(_has_written, results)):
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


def _has_written(result: _wire.Result | StoreError) -> bool:
    """Whether an action has booked something, settled or reset: a refusal and a look have not."""
    return result is None or (type(result) is tuple and result[0].allowed and len(result[1]) > 0)
