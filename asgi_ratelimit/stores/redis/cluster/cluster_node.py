"""One primary of a cluster: a batch is one script call for each slot, and a slot that has moved is followed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from redis.asyncio import ConnectionPool
from redis.exceptions import AskError, AuthenticationError, NoPermissionError

from ....decision import Charge
from ....errors import StoreError, StoreUnavailable
from ..batching import Finish
from ..connection.script_calls import ScriptCall
from ..connection.server_addresses import Address
from ..node import Answer, NodeContext, RedisNode
from ..script_actions import Action, charges_of
from .redirections import Redirections
from .splitting import slot_of


class ClusterNode(RedisNode):
    """A ``RedisNode`` at ``address`` that sends all calls of a batch in one packet.

    ``redirected`` receives each redirection and the host that it came from, and returns the address that it leads to;
    ``is_here`` says whether the bucket of a charge is on this node.
    """

    decides_in_outage = False

    def __init__(
        self,
        context: NodeContext,
        pool: Callable[[Address], ConnectionPool],
        address: Address,
        redirected: Callable[[AskError, str], Address],
        is_here: Callable[[Charge], bool],
    ) -> None:
        super().__init__(context, pool(address), "{}:{}".format(*address), is_here)
        self._redirections = Redirections(
            pool, context.timeout, lambda redirection: redirected(redirection, address[0])
        )

    async def aclose(self) -> None:
        """Answer what waits, and close the connections."""
        await super().aclose()
        await self._redirections.aclose()

    def _send_batch(self, actions: list[Action], submitted: float, finish: Finish[Answer]) -> None:
        if self._context.observers.references:
            finish = self._context.observed(len(actions), finish)
        self._caller.start(self._call(actions, submitted, finish))

    async def _answers(self, actions: Sequence[Action], submitted: float) -> list[Answer]:
        """The answers to all actions; actions that the script leaves undone, at its bound of work, are sent again."""
        groups: dict[int, list[int]] = {}
        for at, action in enumerate(actions):
            groups.setdefault(slot_of(charges_of(action)[0]), []).append(at)
        answers: list[Answer] = [None] * len(actions)
        left = list(groups.values())
        while left:
            in_groups = await self._call_groups([[actions[at] for at in group] for group in left], submitted)
            for group, in_group in zip(left, in_groups, strict=True):
                for at, answer in zip(group, in_group):
                    answers[at] = answer
            left = [group[len(done) :] for group, done in zip(left, in_groups) if len(done) < len(group)]
        return answers

    async def _call_groups(self, groups: list[list[Action]], submitted: float) -> list[Sequence[Answer]]:
        """The answers to groups of actions, each group in its own slot and its own call, in one packet."""
        sent_us = self._context.denials.now_us()
        calls = list(map(self._context.script_call, groups))
        replies = await self._caller.evaluate(calls, submitted)
        if self._redirections.has_connections and not any(isinstance(reply, AskError) for reply in replies):
            self._caller.start(self._redirections.aclose())
        in_groups: list[Sequence[Answer] | StoreError] = []
        for group, call, reply in zip(groups, calls, replies, strict=True):
            is_redirection = isinstance(reply, AskError)
            final = await self._redirections.follow(reply, call, submitted) if is_redirection else reply
            in_groups.append(self._read(group, call, final, sent_us))
        failures = [each for each in in_groups if isinstance(each, StoreError)]
        if failures and len(failures) == len(groups):
            raise failures[0]
        self._failure_of_some = failures[0] if failures else self._failure_of_some
        pairs = zip(groups, in_groups)
        return [[each] * len(group) if isinstance(each, StoreError) else each for group, each in pairs]

    def _read(
        self, actions: Sequence[Action], call: ScriptCall, reply: Any, sent_us: float
    ) -> Sequence[Answer] | StoreError:
        """The answers in the reply for one slot, or an error that concerns the whole node."""
        if not isinstance(reply, Exception):
            return self._context.answers(actions, call, reply, sent_us)
        error = self._context.error_of(reply)
        is_of_node = isinstance(error, StoreUnavailable) or isinstance(reply, (AuthenticationError, NoPermissionError))
        if is_of_node and error is not reply:
            error.__cause__ = reply
            return error
        return [error] * len(actions)
