"""A node: the lane to one primary of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from redis.asyncio import ConnectionPool
from redis.exceptions import AskError, MovedError

from ....clock import monotonic_us
from ....decision import Charge
from ....errors import StoreError, StoreUnavailable
from .. import script as _wire
from ..batching import Tell
from ..connection.addresses import Address
from ..connection.script_calls import Call, Link, as_ours
from ..node import Answer, Answers, Lane, Shared
from .slots import slot_of

LOOK_EVERY_US = 1_000_000.0
"""Microseconds from one look for what is owed to a node to the next."""


class Node(Lane):
    """The way to one primary: a call for each slot of a batch, all in one packet, and on to where a slot has moved.

    ``redirected`` is told of every redirection, and of the host that it came from, and says where it leads;
    ``owns`` says whether the bucket of a charge is there.
    """

    carries_parts = True

    def __init__(
        self,
        shared: Shared,
        pool: Callable[[Address], ConnectionPool],
        address: Address,
        redirected: Callable[[AskError, str], Address],
        owns: Callable[[Charge], bool],
    ) -> None:
        super().__init__(shared, pool(address), "{}:{}".format(*address), owns)
        self._pool = pool
        self._host = address[0]
        self._redirected = redirected
        self._detours: dict[Address, Link] = {}
        self._next_look = 0.0

    def _carry_out(self, actions: Sequence[_wire.Action], submitted: float, done: Tell[Answer]) -> None:
        self._link.start(self._tell(actions, submitted, done))

    async def _tell(self, actions: Sequence[_wire.Action], submitted: float, done: Tell[Answer]) -> None:
        answers: Answers = StoreUnavailable("the event loop has ended")
        try:
            answers = await self._answers(actions, submitted)
        except Exception as error:  # noqa: BLE001  # whatever it was, it must reach those who wait
            answers = error
        finally:
            done(answers)

    async def _answers(self, actions: Sequence[_wire.Action], submitted: float) -> Sequence[Answer]:
        asked_us = self._shared.denials.now_us()
        groups: dict[int, list[int]] = {}
        for at, action in enumerate(actions):
            groups.setdefault(slot_of(action.charges[0]), []).append(at)
        calls = [self._shared.call([actions[at] for at in group]) for group in groups.values()]
        replies = await self._link.evaluate(calls, submitted)
        answers: list[Answer] = [None] * len(actions)
        for group, call, reply in zip(groups.values(), calls, replies, strict=True):
            final = await self._detour(reply, call, submitted) if isinstance(reply, AskError) else reply
            for at, answer in zip(group, self._read([actions[at] for at in group], final, asked_us), strict=True):
                answers[at] = answer
        self._look_for_debts()
        return answers

    def _look_for_debts(self) -> None:
        """Now and then: this node may have taken over what was decided here while another was out, or a slot moved."""
        now = monotonic_us()
        if self._shared.failover.debts and now >= self._next_look:
            self._next_look = now + LOOK_EVERY_US
            self.repay()

    def _read(self, actions: Sequence[_wire.Action], reply: Any, asked_us: float) -> Sequence[Answer]:
        """The answers in a reply. Raises ``StoreUnavailable`` for one that is true of the whole node."""
        if not isinstance(reply, Exception):
            return self._shared.answers(actions, reply, asked_us)
        error = reply if isinstance(reply, StoreError) else as_ours(reply, self._shared.timeout)
        if isinstance(error, StoreUnavailable) and error is not reply:
            raise error from reply
        return [error] * len(actions)

    async def _detour(self, redirection: AskError, call: Call, submitted: float) -> Any:
        """The answer of the node that we are sent to, for good (MOVED) or while a slot is being moved (ASK)."""
        address = self._redirected(redirection, self._host)
        if address not in self._detours:
            self._detours[address] = Link(self._pool(address), self._shared.timeout)
        asking = not isinstance(redirection, MovedError)
        try:
            (answer,) = await self._detours[address].evaluate([call], submitted, asking=asking)
        except StoreError as error:
            return error
        return answer

    async def _close(self) -> None:
        for link in (self._link, *self._detours.values()):
            await link.aclose()
