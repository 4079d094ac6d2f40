"""A Redis Cluster: the node that an action goes to, and takes whose keys are in several slots."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

from ...decision import Decision, Settlement, Take, undoing
from ...errors import ConfigurationError, StoreError
from ..base import Decisions
from ..event_loops import keep, see_all_through
from .clients import Connection
from .node import Context, Node
from .wire import PEEK_ID, Action, Answer, NumberedTake, charges_of


class NodeOfCluster(Node):
    """One primary, for the buckets that ``nodes`` says are there."""

    def __init__(self, nodes: ClusterNodes, context: Context, connection: Connection, name: str) -> None:
        super().__init__(context, connection, name)
        self._nodes = nodes

    def is_here(self, bucket: str) -> bool:
        """Whether a bucket is on this node."""
        return self._nodes.node_of(bucket) is self

    async def carry_out(self, actions: Sequence[Action]) -> list[Answer | Exception]:
        """The answers to actions, from one call for each slot. Raises ``StoreError`` if none was answered."""
        parts: dict[str, list[Action]] = {}
        for action in actions:
            parts.setdefault(charges_of(action)[0].key, []).append(action)
        results = await asyncio.gather(*map(super().carry_out, parts.values()), return_exceptions=True)
        answers: dict[int, Any] = {}
        for part, result in zip(parts.values(), results):
            for at, action in enumerate(part):
                answers[id(action)] = result if isinstance(result, BaseException) else result[at]
        if all(isinstance(result, BaseException) for result in results):
            raise answers[id(actions[0])]
        return [answers[id(action)] for action in actions]


class ClusterNodes:
    """All primaries of a cluster, for one event loop.

    A take whose keys are equal is one call. The charges of any other take are taken one key after the other, and given
    back where a later one refuses. Such a take is never booked ahead, whatever its ``max_wait``: it is granted if all
    of it fits now, else ``retry_after`` is the longest wait of its parts.
    """

    def __init__(self, context: Context, connection: Connection, name: str) -> None:
        self._context = context
        self._connection = connection
        self._nodes: dict[str, Node] = {}
        self._unknown = NodeOfCluster(self, context, connection, name)
        """Stands for all nodes until one has said which slot is where."""

    def node_of(self, bucket: str) -> Node:
        """The node that has a bucket."""
        client = self._connection.client
        if client is None:
            return self._unknown
        name: str = client.get_node_from_key(f"{self._context.prefix}:{bucket}").name
        if name not in self._nodes:
            for gone in [each for each in self._nodes if client.get_node(node_name=each) is None]:
                self._context.outage.store_is_back(gone)  # other nodes have its slots
                del self._nodes[gone]
            self._nodes[name] = NodeOfCluster(self, self._context, self._connection, name)
        return self._nodes[name]

    def take(self, take: NumberedTake) -> Decisions | Awaitable[Answer]:
        """The decision on a take, of one key or of several; the outage decides if a node does not answer.

        A caller that gives up does not end a take of several keys, of which some may be charged.
        """
        if len(_parts_of(take.take)) == 1:
            return self.node_of(take.take.charges[0].bucket).take(take)
        return asyncio.shield(keep(self, asyncio.ensure_future(self._take(take))))

    async def answer(self, action: Action) -> Answer:
        """The answer to an action of one key, or to a peek of several. Raises ``StoreError``."""
        if isinstance(action, NumberedTake) and len(_parts_of(action.take)) > 1:
            return Decisions((_joined(action.take, await self._peek(action.take), PEEK_ID),))
        return await self.node_of(charges_of(action)[0].bucket).answer(action)

    def within_slot(self, settlement: Settlement) -> Settlement:
        """A settlement that can be carried out where its bucket is: each part of an operation is forgotten there."""
        if settlement.undone is None:
            return settlement
        parts = _parts_of(settlement.undone)
        return replace(settlement, undone=next(part for part in parts if settlement.charge.key == part.charges[0].key))

    async def aclose(self) -> None:
        """Answer what waits, and close the connections."""
        await see_all_through(self)
        await asyncio.gather(*[node.aclose() for node in (*self._nodes.values(), self._unknown)])
        await self._connection.aclose()

    async def _take(self, numbered: NumberedTake) -> Decisions:
        """Take the parts one after the other; if one is refused, the earlier ones are given back."""
        if numbered.take.best_effort:
            raise ConfigurationError("best_effort on a cluster needs one key for all quotas: take from each by itself")
        take, sent_us = replace(numbered.take, max_wait=0.0), self._context.denials.now_us()
        decisions: list[Decision] = []
        try:
            for part in _parts_of(take):
                decisions.append(await self._decision(part, numbered.id))
                if not decisions[-1].allowed:
                    await self._give_back(decisions)
                    return Decisions((await self._refused(take, decisions[-1].wait_us, sent_us),))
        except StoreError:  # the node has logged it
            await self._give_back(decisions)
            return Decisions((self._context.outage.decide(numbered.take),))
        earlier = next((each.id for each in decisions if each.repeated), numbered.id)
        return Decisions((_joined(take, decisions, earlier),))

    async def _refused(self, take: Take, wait_us: float, sent_us: float) -> Decision:
        """The refusal of a take, with the longest wait of all parts, now that nothing of it is taken."""
        parts = await self._peek(take)
        longest_us, latest_us = max(wait_us, *[each.wait_us for each in parts]), max(each.now_us for each in parts)
        refused = replace(_joined(take, parts, 0), allowed=False, wait_us=longest_us)
        self._context.denials.note(replace(refused, now_us=latest_us), sent_us)  # no node's time is behind that
        return refused

    async def _peek(self, take: Take) -> list[Decision]:
        return [await self._decision(part, PEEK_ID) for part in _parts_of(take)]

    async def _decision(self, part: Take, identity: int) -> Decision:
        (decision,) = cast("Decisions", await self.answer(NumberedTake(part, identity, is_part=True)))
        return decision

    async def _give_back(self, decisions: Sequence[Decision]) -> None:
        """Give back what was taken, which leaves nothing; what a node cannot take back now stays charged."""
        for decision in decisions:
            for settlement in [] if decision.repeated else undoing(decision):
                with suppress(StoreError):
                    await self.answer(settlement)


def _parts_of(take: Take) -> list[Take]:
    """The take, as one take for each of its keys."""
    keys = dict.fromkeys([charge.key for charge in take.charges])
    if len(keys) == 1:
        return [take]
    return [replace(take, charges=tuple([each for each in take.charges if each.key == key])) for key in keys]


def _joined(take: Take, decisions: Sequence[Decision], identity: int) -> Decision:
    """One decision of the decisions on the parts of a take."""
    states = {charge.bucket: state for each in decisions for charge, state in zip(each.take.charges, each.stored)}
    allowed, repeated = all(decisions), any(each.repeated for each in decisions)
    wait_us, now_us = max(each.wait_us for each in decisions), min(each.now_us for each in decisions)
    stored = [states[charge.bucket] for charge in take.charges]
    return Decision(take, allowed, wait_us, stored, now_us, identity, repeated=repeated)
