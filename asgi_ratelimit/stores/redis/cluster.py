"""A Redis Cluster: the node that an action goes to, and takes whose keys are in several slots."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

from ...decision import Charge, Decision, Settlement, Take, undoing, with_charges
from ...errors import ConfigurationError, StoreError
from ..base import Decisions
from ..event_loops import keep, see_all_through
from .clients import Connection
from .node import Context, Node
from .wire import PEEK_ID, Action, Answer, NumberedTake, charges_of


class ClusterNodes:
    """All primaries of a cluster, for one event loop.

    A take whose keys are equal is one call. The charges of any other take are taken one key after the other, and given
    back where a later one refuses. Such a take is never booked ahead, whatever its ``max_wait``: it is granted if all
    of it fits now, else ``retry_after`` is the longest wait of its parts.
    """

    def __init__(self, context: Context, connection: Connection) -> None:
        self._context = context
        self._connection = connection
        self._nodes: dict[str, Node] = {}
        self._unknown = Node(context, self._connection, context.server.name, lambda bucket: True, by_key)
        """Stands for all nodes until one has said which slot is where."""

    def node_of(self, bucket: str) -> Node:
        """The node that has a bucket."""
        client = self._connection.client
        if client is None:
            return self._unknown
        name: str = client.get_node_from_key(f"{self._context.prefix}:{bucket}").name
        node = self._nodes.get(name)
        if node is None:
            self._forget_those_gone(client)
            node = Node(self._context, self._connection, name, lambda each: self.node_of(each).name == name, by_key)
            self._nodes[name] = node
        return node

    def _forget_those_gone(self, client: Any) -> None:
        """Forget the nodes that are no longer in the cluster: others have their slots."""
        for name in [each for each in self._nodes if client.get_node(node_name=each) is None]:
            self._context.outage.store_is_back(name)
            del self._nodes[name]

    def take(self, take: NumberedTake) -> Decisions | Awaitable[Answer]:
        """The decision on a take, of one key or of several; the outage decides if a node does not answer.

        A caller that gives up does not end a take of several keys, of which some may be charged.
        """
        parts = _parts_of(take)
        if len(parts) == 1:
            return self.node_of(take.take.charges[0].bucket).take(take)
        return asyncio.shield(keep(self, asyncio.ensure_future(self._take(take, parts))))

    async def answer(self, action: Action) -> Answer:
        """The answer to an action of one key, or to a peek of several. Raises ``StoreError``."""
        parts = _parts_of(action)
        if len(parts) == 1:
            return await self.node_of(charges_of(action)[0].bucket).answer(action)
        take = cast("NumberedTake", action).take
        return Decisions(
            (_joined(take, [await self._decision(_part(take, part, PEEK_ID)) for part in parts], PEEK_ID),)
        )

    def within_slot(self, settlement: Settlement) -> Settlement:
        """A settlement that can be carried out where its bucket is: each part of an operation is forgotten there."""
        if settlement.undone is None:
            return settlement
        tag = _tag_of(settlement.charge)
        part = tuple([charge for charge in settlement.undone.charges if _tag_of(charge) == tag])
        return replace(settlement, undone=with_charges(settlement.undone, part))

    async def aclose(self) -> None:
        """Answer what waits, and close the connections."""
        await see_all_through(self)
        await asyncio.gather(*[node.aclose() for node in (*self._nodes.values(), self._unknown)])
        await self._connection.aclose()

    async def _take(self, numbered: NumberedTake, parts: Sequence[Sequence[Charge]]) -> Decisions:
        try:
            return Decisions((await self._take_parts(numbered, parts),))
        except StoreError:  # the node has logged it
            return Decisions((self._context.outage.decide(numbered.take),))

    async def _take_parts(self, numbered: NumberedTake, parts: Sequence[Sequence[Charge]]) -> Decision:
        """Take the parts one after the other; if one is refused, the earlier ones are given back."""
        take = replace(numbered.take, max_wait=0.0)
        identity, sent_us = numbered.id, self._context.denials.now_us()
        if take.best_effort:
            raise ConfigurationError(
                "best_effort on a cluster needs one key for all quotas: take from one after the other"
            )
        decisions: list[Decision] = []
        for part in parts:
            try:
                decision = await self._decision(_part(take, part, identity))
            except StoreError:
                await self._give_back(decisions)
                raise
            if not decision.allowed:
                await self._give_back(decisions)
                peeked = await self._peeked(take, parts)
                longest = max(decision.wait_us, *[each.wait_us for each in peeked])
                refused = replace(_joined(take, peeked, 0), allowed=False, wait_us=longest)
                latest = max(each.now_us for each in peeked)  # no node's time is behind it
                self._context.denials.note(replace(refused, now_us=latest), sent_us)
                return refused
            decisions.append(decision)
        earlier = next((each.id for each in decisions if each.repeated), identity)
        return _joined(take, decisions, earlier)

    async def _peeked(self, take: Take, parts: Sequence[Sequence[Charge]]) -> list[Decision]:
        return [await self._decision(_part(take, part, PEEK_ID)) for part in parts]

    async def _decision(self, part: NumberedTake) -> Decision:
        (decision,) = cast("Decisions", await self.answer(part))
        return decision

    async def _give_back(self, decisions: Sequence[Decision]) -> None:
        """Give back what was taken, which leaves nothing; what a node cannot take back now stays charged."""
        for decision in decisions:
            for settlement in [] if decision.repeated else undoing(decision):
                with suppress(StoreError):
                    await self.answer(settlement)


def _part(take: Take, charges: Sequence[Charge], identity: int) -> NumberedTake:
    return NumberedTake(replace(take, charges=tuple(charges)), identity, is_part=True)


def by_key(actions: Sequence[Action]) -> list[list[Action]]:
    """The actions that one call can carry out, as their keys share a slot."""
    parts: dict[str, list[Action]] = {}
    for action in actions:
        parts.setdefault(_tag_of(charges_of(action)[0]), []).append(action)
    return list(parts.values())


def _parts_of(action: Action) -> list[list[Charge]]:
    """The charges of an action, by their keys."""
    parts: dict[str, list[Charge]] = {}
    for charge in charges_of(action):
        parts.setdefault(_tag_of(charge), []).append(charge)
    return list(parts.values())


def _tag_of(charge: Charge) -> str:
    """The hash tag that decides the slot of a bucket."""
    return charge.bucket[charge.bucket.index("{") :]


def _joined(take: Take, decisions: Sequence[Decision], identity: int) -> Decision:
    """One decision of the decisions on the parts of a take."""
    states = {charge.bucket: state for each in decisions for charge, state in zip(each.take.charges, each.stored)}
    return Decision(
        take,
        all(each.allowed for each in decisions),
        max(each.wait_us for each in decisions),
        [states[charge.bucket] for charge in take.charges],
        min(each.now_us for each in decisions),
        identity,
        repeated=any(each.repeated for each in decisions),
    )
